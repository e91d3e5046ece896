"""TLS: a certificate, another one without a restart, clients that must show theirs."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import trustme

import chronicle
from chronicle.errors import ConnectionFailed, InvalidArgument
from chronicle.server import load_settings
from chronicle.server.access.settings import Certificates, certificates_of
from chronicle.tests.patience import PATIENCE_S, wait_until

from .test_server_process import SPEC, Process


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def write_pair(directory: Path, issued: trustme.LeafCert) -> tuple[Path, Path]:
    """The certificate and its key, as files."""
    certificate, key = directory / "server.pem", directory / "server.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


def shown_by(port: int, context: ssl.SSLContext) -> int:
    """The serial number of the certificate that a server shows."""
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line,
        context.wrap_socket(line, server_hostname="127.0.0.1") as secure,
    ):
        found = secure.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@contextlib.contextmanager
def served(store: Path, certificate: Path, key: Path, **more: str) -> Iterator[Process]:
    names = {"CHRONICLE_TLS_CERT": str(certificate), "CHRONICLE_TLS_KEY": str(key), **more}
    server = Process(store, **names)
    try:
        yield server
    finally:
        assert server.stop() == 0, "\n".join(server.log)


def test_a_server_speaks_https_and_takes_new_certificates(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = write_pair(tmp_path, authority.issue_cert("127.0.0.1"))
    trust = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trust))
    with served(tmp_path / "store", *pair) as server:
        assert server.url.startswith("https://")
        port = int(server.url.rpartition(":")[2])
        context = trusting(authority)
        with httpx.Client(base_url=server.url, verify=context, timeout=PATIENCE_S) as http:
            assert http.post("/v1/streams", json=SPEC).status_code == 201
            answer = http.post("/v1/streams/s/events", json=[{"t": 1, "x": 0.5}])
            assert answer.json()["appended"] == 1
            assert "strict-transport-security" not in answer.headers, "a loopback address"
            with pytest.raises(httpx.HTTPError):
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S)
            first = shown_by(port, context)
            write_pair(tmp_path, authority.issue_cert("127.0.0.1"))
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: shown_by(port, context) != first)
            second = shown_by(port, context)
            pair[1].write_text("half a ke")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: any("stays as it was" in line for line in server.log))
            assert shown_by(port, context) == second
            assert http.get("/v1/streams").status_code == 200, "what stood goes on"
        with pytest.raises(ConnectionFailed, match="certificate"):
            chronicle.connect(server.url).streams()
        monkeypatch.setenv("SSL_CERT_FILE", str(trust))
        with chronicle.connect(server.url) as database:
            assert database.sql("SELECT count(*) AS n FROM s").arrow()["n"].to_pylist() == [1]


def test_only_clients_of_an_authority_get_a_connection(
    tmp_path: Path, authority: trustme.CA
) -> None:
    pair = write_pair(tmp_path, authority.issue_cert("127.0.0.1"))
    trust, others = tmp_path / "authority.pem", trustme.CA()
    authority.cert_pem.write_to_path(str(trust))
    with served(tmp_path / "store", *pair, CHRONICLE_TLS_CLIENT_CA=str(trust)) as server:
        context = trusting(authority)
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url + "/healthz", verify=context, timeout=PATIENCE_S)
        others.issue_cert("me").configure_cert(context)
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url + "/healthz", verify=context, timeout=PATIENCE_S)
        known = trusting(authority)
        authority.issue_cert("me").configure_cert(known)
        answer = httpx.get(server.url + "/healthz", verify=known, timeout=PATIENCE_S)
        assert answer.status_code == 200


def test_files_are_looked_at_and_a_bad_pair_changes_nothing(
    tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = write_pair(tmp_path, authority.issue_cert("a.example"))
    found = Certificates(certificate, key, None)
    assert found.context.minimum_version == ssl.TLSVersion.TLSv1_2
    loaded: list[Path] = []
    found.context = SimpleNamespace(  # type: ignore[assignment]
        verify_mode=found.context.verify_mode,
        load_cert_chain=lambda certificate, *_, **__: loaded.append(certificate),
    )
    found.look()
    assert loaded == []
    key.write_bytes(authority.issue_cert("b.example").private_key_pem.bytes())
    found.look()
    assert (loaded, "KEY_VALUES_MISMATCH" in caplog.text) == ([], True)
    found.look()
    assert caplog.text.count("stays as it was") == 1, "said once for a change"
    write_pair(tmp_path, authority.issue_cert("c.example"))
    found.look()
    assert loaded == [certificate]
    certificate.unlink()
    assert not found.reload()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda d: {"tls_key": d / "server.key"}, "CHRONICLE_TLS_KEY needs CHRONICLE_TLS_CERT"),
        (lambda d: {"tls_client_ca": d}, "CHRONICLE_TLS_CLIENT_CA needs CHRONICLE_TLS_CERT"),
        (lambda d: {"tls_cert": d / "none.pem"}, "none.pem .*No such file"),
        (lambda d: {"tls_cert": d / "server.pem"}, "no certificate and its key"),
        (lambda d: {"tls_cert": d / "server.key"}, "no certificate and its key"),
        (
            lambda d: {"tls_cert": d / "both.pem", "tls_client_ca": d / "server.key"},
            "CHRONICLE_TLS_CLIENT_CA: .* no certificates",
        ),
    ],
)
def test_what_cannot_be_used_is_said_at_the_start(
    tmp_path: Path, authority: trustme.CA, make: Callable[[Path], dict[str, Path]], said: str
) -> None:
    certificate, key = write_pair(tmp_path, authority.issue_cert("a.example"))
    (tmp_path / "both.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    assert certificates_of(load_settings(tls_cert=tmp_path / "both.pem")) is not None
    with pytest.raises(InvalidArgument, match=said):
        certificates_of(load_settings(**make(tmp_path)))
    assert certificates_of(load_settings()) is None


def test_browsers_keep_to_https_where_others_can_reach(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path
) -> None:
    chronicle.server.create_token(database.path, "t")
    api = serve_app(database, host="0.0.0.0", tls_cert=tmp_path / "server.pem")
    assert api.get("/healthz").headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in serve_app(database).get("/healthz").headers
