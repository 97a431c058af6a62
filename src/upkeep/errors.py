"""The one exception for everything a user can put right."""


class UpkeepError(Exception):
    """Something is wrong that the user can mend: says where, what was expected, what was found, what to do next.

    The command line prints it without a traceback and exits with 1.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: object = None,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
    ) -> None:
        self.problem, self.where, self.expected, self.found, self.remedy = problem, where, expected, found, remedy
        lines = [problem if where is None else f"{where}: {problem}"]
        if expected is not None:
            lines.append(f"  expected: {expected}")
        if found is not None:
            lines.append(f"  found:    {found}")
        if remedy is not None:
            lines.append(f"  remedy:   {remedy}")
        super().__init__("\n".join(lines))
