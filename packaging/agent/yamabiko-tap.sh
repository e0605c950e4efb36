# /etc/profile.d/yamabiko-tap.sh: this machine's `yamabiko tap agent` observes programs of login shells, and their
# children.
#
# Library and ring must exist: the loader prints an error on stderr of each program if a library in LD_PRELOAD is
# missing. After a boot they are missing until the agent has started; shells opened before that are not observed. Only
# root can create either folder: from a folder that any user can create, such as in /dev/shm, root's programs would load
# any user's library.
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
