"""Hypothesis strategies for regular expressions."""

from hypothesis import strategies as st


def regexes(
    atoms: st.SearchStrategy[str], quantifiers: st.SearchStrategy[str], *, max_leaves: int
) -> st.SearchStrategy[str]:
    """Regular expressions of quantified ``atoms``, in sequences, alternatives and groups."""
    return st.recursive(
        st.builds("{}{}".format, atoms, quantifiers),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=4).map(lambda parts: f"({'|'.join(parts)})"),
            st.builds("({}){}".format, inner, quantifiers),
        ),
        max_leaves=max_leaves,
    )
