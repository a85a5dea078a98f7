"""A `braid up` process of a test, and its HTTP API. Standard library only."""
import http.client, json, os, re, signal, subprocess, sys, tempfile, shutil, time

BUILD = os.environ.get("BRAID_BUILD") or os.path.join(os.path.dirname(__file__), "../../build")
BRAID = os.path.abspath(os.environ.get("BRAID_BINARY") or os.path.join(BUILD, "braid"))
TIMEOUT = 60


class Api:
    """What cluster/openapi.json promises: every answer that a test gets is held against it."""
    anywhere = {400, 403, 404, 405, 413, 414}  # said once, in its description

    def __init__(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../cluster/openapi.json")) as f:
            self.doc = json.load(f)
        self.paths = [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(p))), ops)
                      for p, ops in self.doc["paths"].items()]

    def operation(self, method, path):
        return next((ops[method.lower()] for regex, ops in self.paths
                     if method.lower() in ops and regex.fullmatch(path.split("?")[0])), None)

    def check(self, method, path, answer):
        op = self.operation(method, path) or (method == "HEAD" and self.operation("GET", path))
        where = f"openapi.json: {method} {path}: {answer.status}"
        if op and str(answer.status) in op["responses"]:
            content = op["responses"][str(answer.status)].get("content")
        else:
            assert answer.status in self.anywhere, where
            content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        if method == "HEAD" or not content:
            return
        kind = answer.headers["Content-Type"].split(";")[0]
        assert kind in content, f"{where}: {kind}"
        if kind == "application/json":
            self.fits(answer.json, content[kind]["schema"], where)
        elif kind == "application/x-ndjson":
            for line in answer.text.splitlines():
                self.fits(json.loads(line), content[kind]["schema"], where)

    def fits(self, value, schema, where):
        parts, known = [schema], {}
        for s in parts:  # of $ref and allOf
            parts += s.get("allOf", [])
            if "$ref" in s:
                parts.append(self.doc["components"]["schemas"][s["$ref"].rsplit("/", 1)[1]])
            known.update(s.get("properties", {}))
            if "enum" in s:
                assert value in s["enum"], (where, value)
            types = s.get("type", [])
            names = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
                     "boolean": bool, "null": type(None)}
            if types:
                assert any(isinstance(value, names[t]) and (t == "boolean" or not isinstance(value, bool))
                           for t in ([types] if isinstance(types, str) else types)), (where, types, value)
            for i, v in enumerate(value if isinstance(value, list) and "items" in s else []):
                self.fits(v, s["items"], f"{where}/{i}")
        for k, v in value.items() if known else []:
            assert k in known, f"{where}: says nothing of '{k}'"
            self.fits(v, known[k], f"{where}/{k}")


API = Api()


class Answer:
    def __init__(self, status, data, headers):
        self.status, self.data, self.headers = status, data, headers

    @property
    def text(self):
        return self.data.decode()

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def error(self):
        return self.json["error"]["text"]


class Server:
    def __init__(self, *args, dir=None, env=None, listen="127.0.0.1:0", wrap=()):
        self.own = dir is None
        self.dir = dir or tempfile.mkdtemp(prefix="braid-test-")
        self.args, self.listen, self.wrap = list(args), listen, list(wrap)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BRAID_")}
        self.env.update(env or {})
        self.process = self.conn = None

    def start(self):
        began = time.monotonic()
        self.process = subprocess.Popen(
            self.wrap + [BRAID, "up", "--dir", self.dir, "--listen", self.listen] + self.args,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, text=True)
        line = self.process.stdout.readline()
        self.ready_ms = (time.monotonic() - began) * 1000
        if not line.startswith("ready on http://"):
            raise RuntimeError("no `ready`: " + line + self.process.stderr.read())
        self.host, port = line.split("http://")[1].strip().rsplit(":", 1)
        self.port = int(port)
        return self

    def connect(self):
        return http.client.HTTPConnection(self.host.strip("[]"), self.port, timeout=TIMEOUT)

    def __call__(self, method, path, body=None, headers={}, conn=None):
        """One request on a kept connection (or `conn`)."""
        if isinstance(body, (dict, list)):
            body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
        if conn is None:
            self.conn = conn = self.conn or self.connect()
        try:
            conn.request(method, path, body, headers)
            r = conn.getresponse()
            a = Answer(r.status, r.read(), r.headers)
        except BaseException:
            conn.close()
            if conn is self.conn:
                self.conn = None
            raise
        API.check(method, path, a)
        return a

    def submit(self, *specs, **more):
        files = more.pop("files", {})
        return self("POST", "/v1/dataflows", {"specs": [
            {"file": s["name"] + ".json", "text": json.dumps(s), "files": files} for s in specs], **more})

    def post(self, topic, lines, producer=None, seq=None, create=True, **kw):
        q = "?create=1" if create else "?"
        if producer is not None:
            q += f"&producer={producer}&seq={seq}"
        body = "".join(x + "\n" for x in lines)
        return self("POST", f"/v1/topics/{topic}/records{q}", body, **kw)

    def records(self, topic, **q):
        args = "&".join(f"{k}={v}" for k, v in q.items())
        a = self("GET", f"/v1/topics/{topic}/records?format=raw&{args}")
        assert a.status == 200, a.text
        return a.text.split("\n")[:-1]

    def wait(self, what, seconds=20):
        """Calls `what` until it gives something true; returns that."""
        end = time.monotonic() + seconds
        while not (got := what()):
            if time.monotonic() > end:
                raise AssertionError("waited in vain")
            time.sleep(0.01)
        return got

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.close()

    def close(self):
        if self.conn:
            self.conn.close()
        self.conn = None
        for f in (self.process.stdout, self.process.stderr):
            f.close()

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        code = self.process.wait(TIMEOUT)
        self.errors = self.process.stderr.read()
        self.close()
        return code

    def __enter__(self):
        return self.start()

    def __exit__(self, *why):
        if self.process and self.process.poll() is None:
            self.kill()
        if self.own:
            shutil.rmtree(self.dir, ignore_errors=True)


def raw_copy(name, source, sink, start="earliest"):
    """A dataflow that copies a topic."""
    return {"braid": 1, "name": name, "tasks": [
        {"id": "in", "type": "source", "config": {"topic": source, "format": "raw", "start": start}},
        {"id": "out", "type": "sink", "config": {"topic": sink, "format": "raw"}, "inputs": ["in"]}]}


def main(tests):
    """Runs functions as TAP."""
    import traceback
    print(f"1..{len(tests)}", flush=True)
    bad = 0
    for i, t in enumerate(tests, 1):
        title = (t.__doc__ or t.__name__).split("\n")[0].rstrip(".")
        try:
            t()
            print(f"ok {i} - {title}", flush=True)
        except Exception:
            bad += 1
            print(f"not ok {i} - {title}", flush=True)
            print("".join("# " + x + "\n" for x in traceback.format_exc().split("\n")), flush=True)
    sys.exit(1 if bad else 0)
