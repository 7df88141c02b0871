"""The ways of proving to a nats-server who one is: what the server's configuration says, and what a client shows."""

import base64
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # The package has no annotations.

from tests.certificates import Certificates

NATS_WAYS = ("password", "token", "nkey", "creds", "tls", "mutual-tls")


@dataclass(frozen=True)
class NatsSecurity:
    """`config` is for the server, the rest for the client; what the way does not need is None."""

    config: str
    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey_seed: Path | None = None
    creds: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


def nats_security(way: str, folder: Path, certificates: Certificates) -> NatsSecurity:
    """One of `NATS_WAYS`. Files that the client needs are written into the folder."""
    server = certificates.server
    tls = f"cert_file: '{server.certificate}', key_file: '{server.key}', ca_file: '{certificates.ca}'"
    match way:
        case "password":
            config = "authorization { user: alice, password: wonderland }"
            return NatsSecurity(config, user="alice", password="wonderland")
        case "token":
            return NatsSecurity("authorization { token: s3cret-t0ken }", token="s3cret-t0ken")
        case "nkey":
            user = _new_key(nkeys.PREFIX_BYTE_USER)
            seed = folder / "user.nk"
            seed.write_bytes(user.seed)
            return NatsSecurity(f"authorization {{ users: [ {{ nkey: {_public(user)} }} ] }}", nkey_seed=seed)
        case "creds":
            return _with_creds(folder / "user.creds")
        case "tls":
            return NatsSecurity(f"tls {{ {tls} }}", ca=certificates.ca)
        case "mutual-tls":
            client = certificates.client
            config = f"tls {{ {tls}, verify: true }}"
            return NatsSecurity(config, ca=certificates.ca, certificate=client.certificate, key=client.key)
    raise ValueError(way)


def _with_creds(creds: Path) -> NatsSecurity:
    """An operator, its accounts and a user, each vouching for the next with a signed token (a JWT)."""
    operator = _new_key(nkeys.PREFIX_BYTE_OPERATOR)
    system = _new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    account = _new_key(nkeys.PREFIX_BYTE_ACCOUNT)
    user = _new_key(nkeys.PREFIX_BYTE_USER)
    anything = {"subs": -1, "data": -1, "payload": -1}
    limits = {
        **anything, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1, "mem_storage": -1,
        "disk_storage": -1, "streams": -1, "consumer": -1,
    }  # fmt: skip
    operator_jwt = _jwt(operator, operator, "operator", {"system_account": _public(system)})
    accounts = {
        _public(system): _jwt(operator, system, "account", {"limits": {**limits, "mem_storage": 0, "disk_storage": 0}}),
        _public(account): _jwt(operator, account, "account", {"limits": limits}),
    }
    user_jwt = _jwt(account, user, "user", {"pub": {}, "sub": {}, **anything})
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    preload = "\n".join(f"{key}: {jwt}" for key, jwt in accounts.items())
    config = f"operator: {operator_jwt}\nresolver: MEMORY\nresolver_preload: {{\n{preload}\n}}"
    return NatsSecurity(config, creds=creds)


def _jwt(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, kind: str, claims: Mapping[str, object]) -> str:
    body: dict[str, object] = {
        "iat": int(time.time()),
        "iss": _public(issuer),
        "name": kind,
        "sub": _public(subject),
        "nats": {**claims, "type": kind, "version": 2},
    }
    digest = hashlib.sha256(json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_base64({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_base64(body)}"
    signature = base64.urlsafe_b64encode(issuer.sign(signed.encode())).decode().rstrip("=")
    return f"{signed}.{signature}"


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _new_key(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


def _public(key: nkeys.KeyPair) -> str:
    return bytes(key.public_key).decode()
