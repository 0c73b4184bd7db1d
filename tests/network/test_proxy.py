"""What gRPC does with a proxy, as docs/federation.md says it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc


def reached(port: int) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=1)
        except grpc.FutureTimeoutError:
            return False
        return True


def test_a_server_is_excepted_from_the_proxy_in_lower_case(monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert reached(port)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert not reached(port)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert reached(port)
    server.stop(None).wait()
