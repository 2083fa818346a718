"""A whole Kubernetes on one machine, for tests: see tests/cluster/README.md."""
import pathlib
import sys

# Images are written by what writes those of a release.
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[3] / "deploy" / "image"))
