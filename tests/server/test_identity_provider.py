"""JWTs of an identity provider: who gets in, with which rights, while keys come and go."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from chronicle.errors import InvalidArgument, Unauthorized
from chronicle.server import create_token, load_settings
from chronicle.server.access.identity_provider import IdentityProvider, provider_of
from chronicle.server.http.replies import Problem
from chronicle.server.run import check_binding
from chronicle.tests.patience import PATIENCE_S, wait_until

from .flights import SPEC

ISSUER, AUDIENCE = "https://login.example", "chronicle"
ALGORITHMS = ["RS256", "ES256", "Ed25519"]


def claims(**more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": int(time.time()) + 600, **more}


def signed(key: Any, given: dict[str, Any], algorithm: str = "ES256", **header: Any) -> str:
    return jwt.encode({"alg": algorithm, "kid": key.kid, **header}, given, key, [algorithm])


def write_keys(path: Path, *keys: Any) -> Path:
    content = {"keys": [key.as_dict(private=False) for key in keys]}
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    os.replace(fresh, path)
    return path


@pytest.fixture(scope="module")
def key() -> Any:
    return ECKey.generate_key("P-256", auto_kid=True)


@pytest.fixture
def provider(tmp_path: Path, key: Any) -> IdentityProvider:
    path = write_keys(tmp_path / "keys.json", key)
    return IdentityProvider(ISSUER, AUDIENCE, str(path), ALGORITHMS)


def test_a_jwt_is_a_token_with_its_scopes_and_streams(provider: IdentityProvider, key: Any) -> None:
    given = claims(scope="openid chronicle:read chronicle:ingest read chronicle:root")
    token = provider.find(signed(key, given))
    assert (token.name, token.scopes, token.streams) == ("jwt:ada", ("read", "ingest"), ("*",))
    listed = claims(scope=["chronicle:read"], sub="bob", **{"chronicle:streams": ["fl*", "x y"]})
    other = provider.find(signed(key, listed))
    assert (other.scopes, other.streams) == (("read",), ("fl*", "x y"))
    assert other.id != token.id
    again = provider.find(signed(key, claims(aud=["a", AUDIENCE], exp=time.time() + 900)))
    assert (again.id, again.scopes) == (token.id, ())


NOW = int(time.time())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"iss": "https://other.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": []}, "aud"),
        ({"exp": NOW - 3600}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"nbf": NOW + 86_400}, "not yet valid"),
        ({"iat": NOW + 86_400}, "future"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "x" * 201}, "sub"),
        ({"scope": 7}, "scope"),
        ({"scope": {"chronicle:read": 1}}, "scope"),
        ({"chronicle:streams": [1]}, "chronicle:streams"),
        ({"chronicle:streams": [""]}, "chronicle:streams"),
        ({"padding": "x" * 9000}, "at most"),
    ],
)
def test_claims_that_do_not_fit_let_nobody_in(
    provider: IdentityProvider, key: Any, change: dict[str, Any], said: str
) -> None:
    given = {name: v for name, v in claims(**change).items() if v is not None}
    with pytest.raises(Unauthorized, match=said):
        provider.find(signed(key, given))


def test_signatures_that_anybody_could_make_let_nobody_in(
    provider: IdentityProvider, key: Any
) -> None:
    public = json.dumps(key.as_dict(private=False)).encode()
    secret = OctKey.import_key(public, {"kid": key.kid})
    stranger = ECKey.generate_key("P-256", {"kid": key.kid})
    head, _, signature = signed(key, claims(scope="chronicle:read")).split(".")
    _, body, _ = signed(key, claims(scope="chronicle:admin")).split(".")
    unsigned = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": key.kid}).encode())
    for wrong in (
        signed(secret, claims(), "HS256"),
        signed(stranger, claims()),
        signed(RSAKey.generate_key(2048, {"kid": key.kid}), claims(), "RS256"),
        f"{head}.{body}.{signature}",
        f"{head}.{body}.",
        f"{unsigned.decode().rstrip('=')}.{body}.",
        f"{base64.urlsafe_b64encode(b'[' * 6000).decode()}.{body}.{signature}",
        "a.b.c",
        "..",
        "\udcff.\udcff.\udcff",
    ):
        with pytest.raises(Unauthorized):
            provider.find(wrong)


def test_a_jwt_ends_with_its_time_or_its_key(
    provider: IdentityProvider, key: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = signed(key, claims())
    assert provider.find(text).name == "jwt:ada"
    with monkeypatch.context() as patched:
        later = time.time() + 700
        patched.setattr(time, "time", lambda: later)
        with pytest.raises(Unauthorized, match="expired"):
            provider.find(text)
    assert provider.find(text).name == "jwt:ada"
    (tmp_path / "keys.json").write_text("{")
    assert provider.find(text).name == "jwt:ada", "what cannot be read changes nothing"
    other = OKPKey.generate_key("Ed25519", auto_kid=True)
    write_keys(tmp_path / "keys.json", other)
    with pytest.raises(Unauthorized, match="key that its issuer does not have"):
        provider.find(text)
    assert provider.find(signed(other, claims(), "Ed25519")).name == "jwt:ada"


# ------------------------------------------------------------------------------ over the network


class Published:
    """A provider's keys, served on loopback."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: tuple[int, bytes] = (500, b"")
        self.held = threading.Event()
        self.held.set()
        told = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told.asked += 1
                told.held.wait(PATIENCE_S)
                status, body = told.answer
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, args=(0.02,)).start()

    def publish(self, *keys: Any) -> None:
        self.answer = (200, json.dumps(KeySet(list(keys)).as_dict(private=False)).encode())

    def close(self) -> None:
        self.held.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def published() -> Iterator[Published]:
    with contextlib.closing(Published()) as found:
        yield found


def test_keys_are_fetched_and_fetched_anew_when_one_is_not_known(
    published: Published, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "chronicle.server.access.identity_provider"
    monkeypatch.setattr(f"{module}.COOL_S", PATIENCE_S)
    provider = IdentityProvider(ISSUER, AUDIENCE, published.url, ALGORITHMS)
    text = signed(key, claims())
    published.publish(key)
    published.held.clear()
    with pytest.raises(Problem) as waiting:
        provider.find(text)
    assert (waiting.value.status, waiting.value.headers["Retry-After"]) == (503, "1")
    published.held.set()
    wait_until(lambda: provider._keys is not None)
    assert provider.find(text).name == "jwt:ada"
    fresh = ECKey.generate_key("P-256", auto_kid=True)
    published.publish(fresh)
    for _ in range(20):
        with pytest.raises(Unauthorized, match="does not have"):
            provider.find(signed(fresh, claims()))
    assert published.asked == 1, "not again so soon"
    monkeypatch.setattr(f"{module}.COOL_S", 0.0)
    with pytest.raises(Problem):
        provider.find(signed(fresh, claims()))
    monkeypatch.undo()
    wait_until(lambda: not provider._fetching)
    assert provider.find(signed(fresh, claims())).name == "jwt:ada"
    with pytest.raises(Unauthorized):
        provider.find(text)


@pytest.mark.parametrize(
    "answer", [(500, b""), (302, b""), (200, b"<html>"), (200, b"{}"), (200, b" " * (2 << 20))]
)
def test_keys_that_cannot_be_had_leave_those_that_were(
    published: Published,
    key: Any,
    answer: tuple[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    module = "chronicle.server.access.identity_provider"
    provider = IdentityProvider(ISSUER, AUDIENCE, published.url, ALGORITHMS)
    published.publish(key)
    provider.refresh()
    provider.refresh()
    assert published.asked == 1
    published.answer = answer
    monkeypatch.setattr(f"{module}.REFRESH_S", -1.0)
    provider.refresh()
    assert published.asked == 2
    assert "cannot be had" in caplog.text
    assert provider.find(signed(key, claims())).name == "jwt:ada"
    monkeypatch.setattr(f"{module}.KEPT_S", -1.0)
    with pytest.raises(Problem):
        provider.find(signed(key, claims(sub="bob")))
    wait_until(lambda: not provider._fetching)


# ------------------------------------------------------------------------------------- a server


def test_a_server_takes_tokens_and_jwts(
    database: Any, serve_app: Callable[..., Any], tmp_path: Path, key: Any
) -> None:
    keys = write_keys(tmp_path / "keys.json", key)
    said = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys": str(keys)}
    api = serve_app(database, **said)
    assert api.get("/v1/streams").status_code == 401, "closed, although there are no tokens"

    def ask(method: str, path: str, secret: str, **more: Any) -> int:
        headers = {"authorization": f"Bearer {secret}"}
        return int(api.request(method, path, headers=headers, **more).status_code)

    writer = signed(key, claims(scope="chronicle:write", **{"chronicle:streams": "fl*"}))
    assert ask("POST", "/v1/streams", writer, json=SPEC) == 201
    assert ask("POST", "/v1/streams", writer, json={**SPEC, "name": "x"}) == 403
    one = [{"timestamp": "2018-08-01T05:00:00Z"}]
    assert ask("POST", "/v1/streams/flights/events", writer, json=one) == 200
    assert ask("GET", "/v1/streams/flights/events", writer) == 403
    assert ask("GET", "/v1/session", signed(key, claims())) == 200
    assert ask("GET", "/v1/streams/flights", signed(key, claims())) == 403
    assert ask("GET", "/v1/streams", "a.b.c") == 401
    _, secret = create_token(database.path, "own", ["read"])
    assert ask("GET", "/v1/streams/flights/events", secret) == 200
    plain = serve_app(database)
    headers = {"authorization": f"Bearer {writer}"}
    assert plain.get("/v1/streams", headers=headers).status_code == 401


def test_settings_of_jwts_come_together(tmp_path: Path, key: Any) -> None:
    keys = write_keys(tmp_path / "keys.json", key)
    whole = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys": str(keys)}
    assert provider_of(load_settings()) is None
    assert provider_of(load_settings(**whole)) is not None
    check_binding(load_settings(store=tmp_path / "s", host="0.0.0.0", **whole))
    for name in whole:
        with pytest.raises(InvalidArgument, match="need all of"):
            provider_of(load_settings(**{**whole, name: None}))
    for wrong in ("HS256", "none", "RS256,HS512", ""):
        with pytest.raises(InvalidArgument, match="algorithms are some of"):
            load_settings(jwt_algorithms=wrong)
    for where in ("http://login.example/keys", str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(InvalidArgument, match="CHRONICLE_JWT_KEYS"):
            provider_of(load_settings(**{**whole, "jwt_keys": where}))
    for content in ("", "[]", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AA"}]}', "[" * 99999):
        keys.write_text(content)
        with pytest.raises(InvalidArgument, match="JWK set"):
            provider_of(load_settings(**whole))
