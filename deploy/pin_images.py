"""Writes the digests of images into the files under deploy/: `make pin-images`.

An image is named by its exact version; a digest beside it (`redis:7.4.6-alpine@sha256:...`) holds
that version to the bytes that it had. Digests come from the images' registry. Where that does not
answer, nothing is changed, and it says so.
"""

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

DEPLOY = Path(__file__).parent
FILES = ("Dockerfile", "compose.yaml")
HUB, AUTH = "https://registry-1.docker.io", "https://auth.docker.io/token"
TIMEOUT_S = 20.0
# An index of all platforms, or the manifest of an image for one (OCI image and distribution 1.1).
ACCEPTED = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
IMAGE = re.compile(r"^(FROM |\s+image: )([a-z0-9./-]+):([\w.-]+)(?:@sha256:[0-9a-f]{64})?", re.M)


def digest_of(name: str, tag: str, registry: str = HUB, auth: str = AUTH) -> str:
    """Asks a registry; raises `OSError` where there is no answer."""
    repository = name if "/" in name else f"library/{name}"
    asked = f"{auth}?service=registry.docker.io&scope=repository:{repository}:pull"
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        token = json.load(answer)["token"]
    request = urllib.request.Request(
        f"{registry}/v2/{repository}/manifests/{tag}",
        headers={"authorization": f"Bearer {token}", "accept": ACCEPTED},
        method="HEAD",
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return str(answer.headers["docker-content-digest"])


def pinned(text: str, digests: dict[tuple[str, str], str]) -> str:
    """Returns a file with its images' digests; images without one stay."""

    def one(found: re.Match[str]) -> str:
        before, name, tag = found.groups()
        digest = digests.get((name, tag))
        return found[0] if digest is None else f"{before}{name}:{tag}@{digest}"

    return IMAGE.sub(one, text)


def images(text: str) -> set[tuple[str, str]]:
    """Returns the names and tags in a file."""
    return {(name, tag) for _, name, tag in IMAGE.findall(text)}


def main() -> int:
    """Returns 1 where a registry did not answer."""
    texts = {name: (DEPLOY / name).read_text() for name in FILES}
    wanted = sorted(set().union(*map(images, texts.values())))
    try:
        digests = {(name, tag): digest_of(name, tag) for name, tag in wanted}
    except (OSError, KeyError) as error:
        print(f"No registry answers, so nothing is pinned: {error}", file=sys.stderr)
        return 1
    for name, text in texts.items():
        (DEPLOY / name).write_text(pinned(text, digests))
    print("\n".join(f"{name}:{tag} {digest}" for (name, tag), digest in digests.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
