"""Silent connections: with 256 descriptors health is answered, and after 30 s nobody is left."""

import time
import urllib.request

from tests.accept.connections import KEY, connected, gateway, num_open

NUM_SILENT = 232
LONGEST_S = 32.0  # 30, and what a look and a busy machine take
BEGUN = (
    b"",
    b"GET / HTTP/1.1\r\nhost: x\r\n",
    b"GET /v1/responses HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"POST /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
    f"POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    "content-length: 1000\r\n\r\n{".encode(),
)


def main() -> bool:
    """Descriptors, and then deadlines."""
    with gateway(max_descriptors=256) as process:
        began_s = time.monotonic()
        silent = [connected(process) for _ in range(NUM_SILENT)]
        silent += [connected(process, begun) for begun in BEGUN for _ in range(12)]
        slowest_s = 0.0
        for _ in range(20):
            asked_s = time.monotonic()
            with urllib.request.urlopen(f"{process.url}/healthz", timeout=10) as answer:
                assert answer.status == 200
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
        time.sleep(max(0.0, LONGEST_S - (time.monotonic() - began_s)))
        left = num_open(silent)
        told = process.log.count("few file descriptors")
        for each in silent:
            each.close()
    print(f"{len(silent)} silent connections, 256 descriptors: /healthz within {slowest_s:.3f} s")
    print(f"open after {LONGEST_S:.0f} s: {left}; lines in the log: {told}")
    return left == 0 and told >= 1
