"""Mutual TLS as control planes expect it: `tls.crt`, `tls.key` and the callers' `ca.crt` in one directory.

The files are looked at again for each new connection, so a certificate that is rotated on disk is used from the next
connection on, without a restart.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc

logger = logging.getLogger("planform_sdk")

FILES = ("tls.key", "tls.crt", "ca.crt")


class CertificateDirectory:
    """The files, and what they were when last read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[tuple[int, int, int], ...] = ()

    def read(self) -> Any:
        """Give gRPC's certificate configuration. Raises OSError if a file cannot be read."""
        self._seen = self._stat()
        key, certificate, authority = ((self._directory / name).read_bytes() for name in FILES)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)

    def read_if_changed(self) -> Any | None:
        """Give a new configuration if a file changed, else None, which tells gRPC to keep what it has."""
        try:
            if self._stat() == self._seen:
                return None
            configuration = self.read()
        except OSError as error:
            logger.warning("cannot read the new certificates; the old ones stay", extra={"error": str(error)})
            return None
        logger.info("certificates reloaded", extra={"directory": str(self._directory)})
        return configuration

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server that demands a client certificate signed by `ca.crt`."""
        return grpc.dynamic_ssl_server_credentials(
            self.read(), self.read_if_changed, require_client_authentication=True
        )

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        found = [(self._directory / name).stat() for name in FILES]
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in found)
