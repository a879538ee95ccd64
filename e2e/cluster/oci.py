"""Makes OCI image archives out of one root file system, without a container engine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MEDIA = "application/vnd.oci.image"


def write_archive(
    name: str, layer: Path, target: Path, *, entrypoint: Sequence[str] = (), command: Sequence[str] = (), user: str = ""
) -> None:
    """Wrap one uncompressed root file system tar as an OCI archive that containerd and buildah import as `name`."""
    layer_digest, layer_size = _digest_of(layer)
    process = {"Env": [_PATH], "Entrypoint": [*entrypoint], "Cmd": [*command], "User": user}
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {key: value for key, value in process.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            "history": [{"created_by": "specfleet e2e.cluster"}],
        }
    )
    layers = [{"mediaType": f"{_MEDIA}.layer.v1.tar", "digest": layer_digest, "size": layer_size}]
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": _descriptor("config", config),
            "layers": layers,
        }
    )
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    platform = {"architecture": "amd64", "os": "linux"}
    entry = {**_descriptor("manifest", manifest), "platform": platform, "annotations": names}
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [entry]}))
        for blob in (config, manifest):
            _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        header = tarfile.TarInfo(f"blobs/sha256/{layer_digest.removeprefix('sha256:')}")
        header.size = layer_size
        with layer.open("rb") as data:
            archive.addfile(header, data)


def write_layer(target: Path, programs: Mapping[str, Path], folders: Sequence[str] = ()) -> None:
    """Write a root file system tar: programs by their path in the image, and folders that anybody may write to."""
    with tarfile.open(target, "w") as layer:
        for folder in folders:
            header = tarfile.TarInfo(folder.strip("/"))
            header.type = tarfile.DIRTYPE
            header.mode = 0o1777
            layer.addfile(header)
        for path, program in programs.items():
            header = tarfile.TarInfo(path.strip("/"))
            header.size = program.stat().st_size
            header.mode = 0o755
            with program.open("rb") as data:
                layer.addfile(header, data)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    suffix = "+json"
    digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
    return {"mediaType": f"{_MEDIA}.{kind}.v1{suffix}", "digest": digest, "size": len(blob)}


def _digest_of(file: Path) -> tuple[str, int]:
    with file.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256")
        return f"sha256:{digest.hexdigest()}", data.tell()


def _add(archive: tarfile.TarFile, name: str, blob: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size = len(blob)
    archive.addfile(header, io.BytesIO(blob))
