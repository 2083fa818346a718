"""python3 -m trainyard.torch FROM TO: weights from safetensors to what torch.load() reads, or back."""
import sys

from trainyard._errors import InvalidArgument
from trainyard.torch._weight_files import __doc__ as usage
from trainyard.torch._weight_files import convert


def main() -> int:
    """The exit code."""
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(usage.strip())
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    try:
        convert(sys.argv[1], sys.argv[2])
    except (InvalidArgument, OSError) as error:
        print(f"trainyard.torch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
