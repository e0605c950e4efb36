# /etc/profile.d/yamabiko-tap.sh: programs of login shells, and what they start, are seen by this machine's `yamabiko tap agent`.
#
# The library must be there, and the ring beside it: the loader says on stderr of each program that a library in LD_PRELOAD is missing. They are gone
# after a boot until the agent has been started; shells that were opened before then are not followed. Only root can make either
# folder: from one that others can make, such as in /dev/shm, root's own programs would load what anybody put there.
for yamabiko_tap in /run/yamabiko/yamabiko-tap /run/yamabiko-tap; do
    case "${LD_PRELOAD:-}" in
    */libyamabiko_tap.so*) break ;;
    esac
    if [ -r "$yamabiko_tap/libyamabiko_tap.so" ] && [ -e "$yamabiko_tap/ring" ]; then
        LD_PRELOAD="$yamabiko_tap/libyamabiko_tap.so${LD_PRELOAD:+:$LD_PRELOAD}"
        YAMABIKO_TAP="$yamabiko_tap"
        export LD_PRELOAD YAMABIKO_TAP
    fi
done
unset yamabiko_tap
