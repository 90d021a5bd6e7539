# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("messages overlap one another", "max(free, moment) + seconds", "max(free, moment + seconds)"),
    ("a message starts before its bucket is ready", "max(free, moment) + seconds", "free + seconds"),
    ("messages do not wait for one another", "max(free, moment) + seconds", "moment + seconds"),
    ("the moment of the end, not what is exposed", "free - ready[-1]", "free"),
    ("nothing to send is an error", " if ready else 0.0", ""),
    ("the wires are free from the first second on", "free = 0.0", "free = 1.0"),
]
