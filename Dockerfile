# An image with yamabiko, built from Debian's packages and the Rust toolchain alone.
#
#   docker build -t yamabiko .
#   docker run --rm yamabiko bench http://192.0.2.7/                          no path: no privilege
#   docker run --rm --device /dev/net/tun --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt apparmor=unconfined \
#     -v yamabiko-runs:/runs yamabiko demo                                    with a path; `yamabiko doctor` says what lacks

# This image is Debian with a Rust toolchain and a C compiler: Debian's own rustc is older than the workspace wants.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils dpkg-dev gcc gzip libc6-dev tar \
    && rm -rf /var/lib/apt/lists/*
RUN cargo install cargo-deb --version 3.8.0 --locked
WORKDIR /source
COPY . .
# The moment that files in the package bear; the history that would say it is not copied (.dockerignore).
ARG SOURCE_DATE_EPOCH=0
RUN SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH cargo xtask package

FROM debian:bookworm-slim
COPY --from=build /source/target/package/*.deb /tmp/package/
# By apt, so that what the package says it depends on comes along, and nothing else has to.
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/package/*.deb \
    && rm -rf /var/lib/apt/lists/* /tmp/package
ENV YAMABIKO_RUNS=/runs
VOLUME /runs
ENTRYPOINT ["yamabiko"]
CMD ["--help"]
