"""What a rank waits for that is no collective."""


class Wait:
    """Told as a `work.Work` is. owner: the `rank.Rank`; call: what waits, in words; reason: what for."""

    def __init__(self, owner, call, reason):
        self.owner, self.rank, self.call, self._reason = owner, owner.number, call, reason

    def end(self):
        """Let the rank go on."""
        self.owner.world.baton.done(self.rank, self)

    def lacks(self):
        """Return why it waits, in words."""
        return self._reason
