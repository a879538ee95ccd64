"""Why a Job ends without having measured everything."""


class StoppedError(Exception):
    """SIGTERM came: leave what is finished and go."""

    def __str__(self) -> str:
        return "stopped by SIGTERM"


class CannotMeasureError(Exception):
    """Nothing useful can be measured; the text says why, for a person."""


class BadPlanError(Exception):
    """The plan cannot be used."""
