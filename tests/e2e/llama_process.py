"""Runs llama.cpp as a process, with a model made by the tests; needs the `xllamacpp` wheel."""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.e2e.llama_model import write_model
from tests.ports import free_port


class LlamaServer:
    """Is the server's process."""

    def __init__(
        self, folder: Path, *, context_tokens: int = 32_768, more: tuple[str, ...] = ()
    ) -> None:
        """Starts it with its own model in `folder`; two requests share its context."""
        self.port = free_port()
        model = folder / "tiny.gguf"
        write_model(model, more)
        self._log = (folder / "llama.log").open("w+")
        script = Path(__file__).parent / "llama_server.py"
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(model), str(self.port), str(context_tokens)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        assert "listening" in self._process.stdout.readline(), self._log.read()

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"llamacpp:{name} "):
                    return float(line.partition(" ")[2])
        raise AssertionError(f"no metric {name}")

    def wait_until_idle(self) -> None:
        deadline = time.monotonic() + 60.0
        while self.metric("requests_processing"):
            assert time.monotonic() < deadline, "it still generates"
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()
