"""JSON merge patches without an apiserver."""
import copy


def merged(target, patch):
    """`target` with `patch` applied, as RFC 7386 has it; both stay as they are."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
