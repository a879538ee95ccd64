"""Which mounts of the engine's container hold the models, so that another pod can read the same files."""

from pathlib import PurePosixPath

from specfleet.api.base import RawObject
from specfleet.api.model import TemplateSpec

OF_ONE_POD = ("emptyDir", "ephemeral")
"""Volumes that begin empty in every pod: an init container fills them, and no other pod can look into them."""


def mount_of(template: TemplateSpec, path: str) -> RawObject | None:
    """The volumeMount below which an absolute path lies (the deepest one); None: a folder of the image itself."""
    wanted = PurePosixPath(path)
    covering = [one for one in template.volume_mounts if wanted.is_relative_to(str(one.get("mountPath", "")) or "?")]
    return max(covering, key=lambda one: len(PurePosixPath(str(one["mountPath"])).parts), default=None)


def volume_of(template: TemplateSpec, mount: RawObject) -> RawObject | None:
    """The volume of a mount; None when the template has none of that name (a claim of a StatefulSet, a mistake)."""
    return next((one for one in template.volumes if one.get("name") == mount.get("name")), None)


def readable_elsewhere(template: TemplateSpec, path: str) -> bool:
    """Whether another pod with the same mounts sees the same files at an absolute path."""
    mount = mount_of(template, path)
    if mount is None:
        return True
    volume = volume_of(template, mount)
    return volume is not None and not any(kind in volume for kind in OF_ONE_POD)
