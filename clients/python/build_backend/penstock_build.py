"""Builds the wheel and the sdist of penstock with the standard library alone.

The package is pure Python without dependencies, so it installs into a clean environment that has neither
setuptools nor wheel, and without a network.
"""

import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHEN = (2020, 1, 1, 0, 0, 0)


def _version():
    with open(os.path.join(ROOT, "penstock", "_version.py"), encoding="utf-8") as file:
        return re.search(r'__version__ = "([^"]+)"', file.read()).group(1)


def _setting(name):
    """A line of pyproject.toml, which Python 3.9 cannot read."""
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        return re.search(rf'^{name} = "([^"]+)"$', file.read(), re.M).group(1)


def _classifiers():
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        return re.findall(r'^    "([^"]+ :: [^"]+)",$', file.read(), re.M)


def _metadata():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    lines = [
        "Metadata-Version: 2.1",
        "Name: penstock",
        f"Version: {_version()}",
        f"Summary: {_setting('description')}",
        "License: Apache-2.0",
        *(f"Classifier: {c}" for c in _classifiers()),
        f"Requires-Python: {_setting('requires-python')}",
        "Description-Content-Type: text/markdown",
        "",
        readme,
    ]
    return "\n".join(lines)


def _files(*folders):
    for folder in folders:
        for at, names, files in os.walk(os.path.join(ROOT, folder)):
            names[:] = sorted(n for n in names if n != "__pycache__" and not n.endswith(".egg-info"))
            for name in sorted(files):
                if not name.endswith((".pyc", ".pyo")):
                    path = os.path.join(at, name)
                    yield os.path.relpath(path, ROOT).replace(os.sep, "/"), path


def _dist_info():
    return {
        "METADATA": _metadata(),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: penstock_build\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "[console_scripts]\npenstock = penstock.__main__:run\n",
        "top_level.txt": "penstock\n",
    }


def _write_wheel(folder, members):
    name = f"penstock-{_version()}-py3-none-any.whl"
    info = f"penstock-{_version()}.dist-info"
    record = []
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(path, data):
            entry = zipfile.ZipInfo(path, WHEN)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")

        for path, data in members:
            add(path, data)
        for path, text in _dist_info().items():
            add(f"{info}/{path}", text.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", WHEN), "\n".join(record) + "\n")
    return name


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, [(name, _read(path)) for name, path in _files("penstock")])


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, [("penstock.pth", ROOT.encode() + b"\n")])


def build_sdist(sdist_directory, config_settings=None):
    base = f"penstock-{_version()}"
    name = f"{base}.tar.gz"
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as sdist:

        def add(path, data):
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size, entry.mode, entry.mtime = len(data), 0o644, 1577836800
            sdist.addfile(entry, io.BytesIO(data))

        for path in ("pyproject.toml", "README.md"):
            add(path, _read(os.path.join(ROOT, path)))
        for path, file in _files("penstock", "build_backend", "tests"):
            add(path, _read(file))
        add("PKG-INFO", _metadata().encode())
    return name


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info = f"penstock-{_version()}.dist-info"
    os.makedirs(os.path.join(metadata_directory, info), exist_ok=True)
    for path, text in _dist_info().items():
        with open(os.path.join(metadata_directory, info, path), "w", encoding="utf-8") as file:
            file.write(text)
    return info


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel
