"""The cluster's own certificate authority, so that clients verify the API server as they do anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.process import run

_DAYS = "3650"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Paths of the authority, the API server's pair and the key that signs service account tokens."""

    directory: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.directory / "ca.crt"

    @property
    def server(self) -> Path:
        """The API server's certificate."""
        return self.directory / "apiserver.crt"

    @property
    def server_key(self) -> Path:
        """The API server's key."""
        return self.directory / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        """The private key of service account tokens."""
        return self.directory / "sa.key"

    @property
    def service_account_public_key(self) -> Path:
        """The public key of service account tokens."""
        return self.directory / "sa.pub"


def make_certificates(directory: Path, names: Sequence[str], addresses: Sequence[str]) -> Certificates:
    """Make an authority and a server certificate for the given host names and addresses."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(directory)
    authority_key = directory / "ca.key"
    # Key usage and key identifiers are what VERIFY_X509_STRICT (Python 3.13's default) asks for.
    run(
        [
            "openssl",
            "req",
            "-x509",
            *_KEY,
            "-keyout",
            authority_key,
            "-out",
            made.authority,
            "-days",
            _DAYS,
            "-subj",
            "/CN=specfleet-test-ca",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
        ]
    )
    subject = ",".join([*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)])
    run(
        [
            "openssl",
            "req",
            "-x509",
            *_KEY,
            "-keyout",
            made.server_key,
            "-out",
            made.server,
            "-days",
            _DAYS,
            "-CA",
            made.authority,
            "-CAkey",
            authority_key,
            "-subj",
            "/CN=kube-apiserver",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-addext",
            f"subjectAltName={subject}",
            "-addext",
            "keyUsage=critical,digitalSignature",
            "-addext",
            "extendedKeyUsage=serverAuth",
        ]
    )
    run(["openssl", "genrsa", "-out", made.service_account_key, "2048"])
    run(["openssl", "rsa", "-in", made.service_account_key, "-pubout", "-out", made.service_account_public_key])
    return made
