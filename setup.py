"Hands settings.ini to setuptools; the version is the one nbdev keeps in the package."
import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

root = Path(__file__).parent
parser = ConfigParser()
parser.read(root / "settings.ini", encoding="utf-8")
meta = parser["DEFAULT"]
repository = meta["repository"].strip()
lines = lambda key: [line for line in meta[key].splitlines() if line.strip()]
version = re.search(r'__version__ = "(.+?)"', (root / "loflexmdm" / "__init__.py").read_text())[1]

setup(
    name=meta["name"],
    version=version,
    description=meta["description"],
    author=meta["author"],
    license=meta["license"],
    keywords=meta["keywords"],
    project_urls=dict(Source=repository, Changelog=f"{repository}/blob/main/CHANGELOG.md") if repository else {},
    long_description=(root / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    classifiers=[f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)],
    python_requires=">=" + meta["min_python"],
    install_requires=lines("requirements"),
    extras_require={
        key.removesuffix("_requirements"): lines(key) for key in meta if key.endswith("_requirements")
    },
    packages=find_packages(include=["loflexmdm", "loflexmdm.*"]),
    include_package_data=True,
    package_data={
        "loflexmdm": ["py.typed", "papers.bib", "recipe.schema.json", "help.json", "presets/*.toml",
                      "molecules/scores/*.gz",
                      "structure_editor/*", "pretrained_models/*/*"]
    },
    entry_points={key: lines(key) for key in meta if key.startswith("loflexmdm.")}
    | dict(console_scripts=lines("console_scripts"), nbdev=["loflexmdm=loflexmdm._modidx:d"]),
)
