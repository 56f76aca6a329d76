"""Runs llama.cpp's own server, from the `xllamacpp` wheel: MODEL PORT [CONTEXT_TOKENS].

It ends when its input does.
"""

import sys

import xllamacpp


def main(model: str, port: str, context_tokens: str = "32768") -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.port = int(port)
    params.n_ctx = int(context_tokens)
    params.n_parallel = 2
    params.cpuparams.n_threads = 1
    params.fit_params = False
    params.warmup = False
    params.endpoint_metrics = True
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
