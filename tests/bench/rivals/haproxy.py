"""Runs HAProxy, Debian's package unpacked: nothing is installed, no service starts.

With `option http-no-delay`: without it streams over HTTP come in lumps of 40 ms (2.6, measured).
"""

from pathlib import Path

from tests.bench.rivals.rival import CannotInstallError, Rival, Started, Upstream, run, same

PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
CONFIG = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
    option http-no-delay
frontend in
    bind 127.0.0.1:{port}
    default_backend out
backend out
    server upstream 127.0.0.1:{upstream_port}
"""


def _libraries(folder: Path) -> str:
    found = sorted((folder / "usr" / "lib").glob("*-linux-gnu*"))
    return ":".join(map(str, found))


def install(folder: Path) -> str:
    """Download and unpack."""
    binary = folder / "usr" / "sbin" / "haproxy"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download"]
        for package in PACKAGES:
            run([*download, package], cwd=folder)
        for package_file in folder.glob("*.deb"):
            run(["dpkg-deb", "-x", str(package_file), str(folder)])
    said = run([str(binary), "-v"], environ={"LD_LIBRARY_PATH": _libraries(folder)})
    if "HAProxy version" not in said:
        raise CannotInstallError(f"haproxy -v said {said[:200]!r}")
    return said.split()[2]


def start(folder: Path, scratch: Path, port: int, upstream: Upstream) -> Started:
    """Says how to start one thread in HTTP mode, with WebSockets as tunnels."""
    config = scratch / "haproxy.cfg"
    config.write_text(CONFIG.format(port=port, upstream_port=upstream.port))
    binary = str(folder / "usr" / "sbin" / "haproxy")
    environ = {"LD_LIBRARY_PATH": _libraries(folder)}
    return Started([binary, "-f", str(config)], environ, base_path="/v1")


RIVAL = Rival(
    name="HAProxy",
    routes=False,
    modes=same("fake", "responses-ws", "responses-sse", "chat-sse", "chat-json"),
    install=install,
    start=start,
)
