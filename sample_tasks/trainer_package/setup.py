"""The trainer as a source distribution, which a Vertex AI job installs: ``python setup.py sdist --formats=gztar``."""

from setuptools import find_packages, setup

setup(
    name="trainer",
    version="0.1",
    packages=find_packages(),
    python_requires=">=3.10",
    install_requires=["numpy"],
    extras_require={"tuning": ["cloudml-hypertune"]},
)
