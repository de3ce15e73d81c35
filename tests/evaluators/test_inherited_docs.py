"""Explanations of inherited parameters."""

import inspect

from capi.evaluators import GTD, TD, TDC
from capi.evaluators._inherited_docs import with_inherited_parameters


class Base:
    """What both share.

    Parameters
    ----------
    depth : int
        How deep.
    width : float
        How wide,
        in metres.

    Notes
    -----
    Not inherited.
    """


def test_a_docstring_without_parameters_gets_those_of_its_base_before_the_next_section():
    @with_inherited_parameters
    class Tank(Base):
        """A tank.

        Examples
        --------
        >>> 1 + 1
        2
        """

    assert (
        Tank.__doc__
        == inspect.cleandoc(
            """A tank.

        Parameters
        ----------
        depth : int
            How deep.
        width : float
            How wide,
            in metres.

        Examples
        --------
        >>> 1 + 1
        2
        """
        )
        + "\n"
    )


def test_own_explanations_take_the_place_of_inherited_ones():
    @with_inherited_parameters
    class Pool(Base):
        """A pool.

        Parameters
        ----------
        colour : str
            Blue.
        depth : int
            How deep at its deepest.
        """

    expected = ["depth : int", "    How deep at its deepest.", "width : float", "    How wide,", "    in metres."]
    assert Pool.__doc__.splitlines()[4:] == [*expected, "colour : str", "    Blue.", ""]


def test_a_docstring_of_one_line_and_none_at_all():
    @with_inherited_parameters
    class Pond(Base):
        """A pond."""

    @with_inherited_parameters
    class Unexplained(Base):
        pass

    assert Pond.__doc__.startswith("A pond.\n\nParameters\n----------\ndepth : int\n")
    assert Unexplained.__doc__ is None


def test_each_method_explains_its_own_step_sizes():
    assert "on the batch) squared" in GTD.__doc__
    assert "on the batch), so" in TDC.__doc__
    assert "second_step_size" in TDC.__doc__
    assert "second_step_size" not in TD.__doc__
    for method in (TD, GTD, TDC):
        assert method.__doc__.count("\nParameters\n") == method.__doc__.count("\nstep_size : ") == 1
