"""The dataflows of the soak test, and what their sinks must hold.

Record i of topic `sys` has offset i. Most dataflows put out one row a record, so the rows of a sink
that saw records from F on are F, F+1, ... without a gap or a repeat; others repeat a part of what a
`base` dataflow with the same tasks put out. Rows are kept as 64-bit hashes or small numbers."""
import array, json, os, re, threading

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.abspath(os.path.join(HERE, "../../dataflows/riotbench"))
SOURCE = re.compile(rb'"n":"source","sv":"([^"]*)"')
BT = re.compile(rb'"bt":"?(\d+)')
TEMPERATURE = re.compile(rb'"v":"(-?[0-9.]+)","u":"far","n":"temperature"')


class Lost(Exception):
    """Rows are missing, repeated or different."""


class Stream:
    """What a topic has brought so far: one number a row, made by `digest` of its bytes."""

    def __init__(self, topic, digest=hash):
        self.topic, self.digest = topic, digest
        self.rows, self.grown = [] if digest is window_row else array.array("q"), threading.Condition()

    def add(self, line):
        with self.grown:
            self.rows.append(self.digest(line))
            self.grown.notify_all()

    def __len__(self):
        return len(self.rows)

    def reach(self, n, seconds=120):
        """Waits until there are n rows."""
        with self.grown:
            if not self.grown.wait_for(lambda: len(self.rows) >= n, seconds):
                raise Lost(f"{self.topic}: {len(self.rows)} of {n} rows came within {seconds} s")


class Input(Stream):
    """Topic sys, with what the checks compute from it."""

    def __init__(self):
        super().__init__("sys")
        self.ids, self.source, self.bt, self.warm = (array.array(t) for t in "qqqd")

    def add(self, line):
        source, bt = SOURCE.search(line)[1], int(BT.search(line)[1])
        t = TEMPERATURE.search(line)
        with self.grown:
            self.rows.append(hash(line))
            self.ids.append(hash((source, bt)))
            self.source.append(hash(source))
            self.bt.append(bt)
            self.warm.append(float(t[1]) if t else float("nan"))
            self.grown.notify_all()


def id_of(line):
    """A SenML row as the record it was made of."""
    return hash((SOURCE.search(line)[1], int(BT.search(line)[1])))


def json_id(line):
    row = json.loads(line)
    return hash((row["source"].encode(), int(row["timestamp"])))


def window_row(line):
    row = json.loads(line)
    return hash(row["source"].encode()), row["window_end"], row["n"]


def shipped(file, name, sinks):
    """A dataflow of dataflows/riotbench under other names of itself and of its sinks."""
    spec = json.load(open(os.path.join(DATA, file)))
    spec["name"] = name
    for t in spec["tasks"]:
        if t["type"] == "sink":
            t["config"]["topic"] = sinks[t["id"]]
    return spec


def chain(name, *tasks):
    """Tasks one below the other, the first being the source of typed SYS records."""
    list_ = [{"id": "in", "type": "source",
              "config": {"topic": "sys", "format": "senml",
                        "schema": "schema/sys-schema_without_annotationfields.txt"}}]
    for i, (kind, config, by) in enumerate(tasks):
        above = list_[-1]["id"]
        list_.append({"id": f"t{i}", "type": kind, "config": config,
                      "inputs": [{"from": above, "by": by} if by else above]})
    return {"braid": 1, "name": name, "tasks": list_}


class Flow:
    """A running dataflow: its spec, the streams of its sinks, and its check."""

    def __init__(self, kind, name, rnd, world):
        self.kind, self.name, self.world = kind, name, world
        self.start = self.past = None  # first record of the sink, and of the task above it
        self.before, self.after = {}, {}  # ends of the base's sinks around the submit
        self.spec, self.streams, self.check = getattr(self, kind)(name, rnd)

    # Each gives spec, streams and check. check(upto): the sink ends with record upto - 1 or, when
    # upto is None, somewhere.
    def copy(self, name, rnd):
        spec = {"braid": 1, "name": name, "tasks": [
            {"id": "in", "type": "source", "config": {"topic": "sys", "format": "raw"}},
            {"id": "out", "type": "sink", "config": {"topic": name, "format": "raw"}, "inputs": ["in"]}]}
        return spec, [Stream(name)], lambda upto: self.each(self.world.input.rows, upto)

    def wide(self, name, rnd):
        spec = shipped("etl-sys-wide.json", name, {"sink": name})
        return spec, [Stream(name)], lambda upto: self.each(self.world.base.streams[0].rows, upto)

    def etl(self, name, rnd):
        spec = shipped("etl-sys.json", name, {"sink": name})
        return spec, [Stream(name, id_of)], lambda upto: self.each(self.world.input.ids, upto)

    def variant(self, name, rnd):
        """ETL with limits and windows of its own, so that only its upper tasks are shared."""
        spec = shipped(rnd.choice(["etl-sys.json", "etl-sys-wide.json"]), name, {"sink": name})
        for t in spec["tasks"]:
            if t["type"] == "range_filter" and rnd.random() < 0.5:
                t["config"]["ranges"]["temperature"] = [-12.5, rnd.randrange(20, 60)]
            if t["type"] == "interpolate":
                t["config"]["window"] = rnd.randrange(2, 12)
        return spec, [Stream(name, id_of)], lambda upto: self.each(self.world.input.ids, upto)

    def filter(self, name, rnd):
        limit = rnd.randrange(-5, 35)
        spec = chain(name, ("filter", {"where": f"temperature > {limit}"}, None),
                     ("project", {"fields": {"source": "source", "timestamp": "timestamp",
                                             "f": "temperature * 1.8 + 32"}}, None),
                     ("sink", {"topic": name, "format": "json"}, None))
        return spec, [Stream(name, json_id)], lambda upto: self.chosen(limit, upto)

    def window(self, name, rnd):
        every = rnd.choice([2, 5, 10, 30])
        spec = chain(name, ("window_aggregate", {"aggregate": {"n": "count()", "t": "mean(temperature)"},
                                                 "every": f"{every}s"}, ["source"]),
                     ("sink", {"topic": name, "format": "json"}, None))
        return spec, [Stream(name, window_row)], lambda upto: self.counted(every * 1000, upto)

    def stats(self, name, rnd):
        sinks = {s: f"{name}-{s}" for s in ("averages", "predictions", "distinct")}
        return shipped("stats-sys.json", name, sinks), [Stream(t) for t in sinks.values()], self.part

    # ---- checks ----
    def each(self, want, upto):
        self.equal(self.streams[0], want, self.start, upto)

    def equal(self, got, want, start, upto):
        n = len(got)
        if upto is not None and n != upto - start:
            raise Lost(f"{self.name}: {n} rows, not {upto - start} (from record {start} on)")
        if got.rows != want[start:start + n]:
            at = next((i for i in range(n) if got.rows[i] != want[start + i]), n)
            raise Lost(f"{self.name} ({self.kind}): row {at} of {n} is not that of record {start + at}")

    def chosen(self, limit, upto):
        w, got = self.world.input, self.streams[0]
        end = len(w.rows) if upto is None else upto
        want = array.array("q", (w.ids[i] for i in range(self.start, end) if w.warm[i] > limit))
        if got.rows != want[:len(got)] or (upto is not None and len(got) != len(want)):
            raise Lost(f"{self.name}: {len(got)} rows over {limit} degrees, wanted {len(want)}")

    def counted(self, size, upto):
        """Each window once, with as many rows as there were records."""
        w, counts, seen = self.world.input, {}, set()
        records = len(w.rows) if upto is None else upto
        for i in range(self.past, records):
            key = (w.source[i], w.bt[i] // size * size + size)
            counts[key] = counts.get(key, 0) + 1
        for source, end, n in self.streams[0].rows:
            if (source, end) in seen or counts.get((source, end)) != n:
                raise Lost(f"{self.name}: window to {end}: {n} rows, not {counts.get((source, end))}, "
                           f"{'again' if (source, end) in seen else 'once'}")
            seen.add((source, end))
        # The watermark is the time of the record before; the sink sees what fires from its start on.
        first = w.bt[self.start - 1] if self.start else 0
        last = max((end for _, end in seen), default=0) - 1 if upto is None else w.bt[upto - 1]
        missing = sum(first < end <= last and (source, end) not in seen for source, end in counts)
        if missing:
            raise Lost(f"{self.name}: {missing} windows from {first} to {last} did not come")

    def part(self, upto):
        """Three sinks that go on with the rows of the base's from one point on."""
        for got, base in zip(self.streams, self.world.stats.streams):
            lo, hi = self.before[base.topic], self.after[base.topic]
            n = len(got)
            ok = any(base.rows[k:k + n] == got.rows and (upto is None or k + n == len(base))
                     for k in range(lo, hi + 1) if n == 0 or (k < len(base) and base.rows[k] == got.rows[0]))
            if not ok:
                raise Lost(f"{got.topic}: its {n} rows are not those of {base.topic} from {lo}..{hi} on "
                           f"(of {len(base)})")


KINDS = ["copy", "wide", "etl", "variant", "variant", "filter", "filter", "window", "stats"]
