"""Peers of the S3 store that are used from Python: NIXL's OBJ plugin, and boto3 with threads.

Each writes, asks for, reads and removes the objects that `s3-peers` does, with so many requests under way, and prints
the same JSON document. NIXL moves batches of its own: as many objects as requests may be under way times eight, by as
many threads as requests may be under way, without checksums of its own where it can be told so.
"""

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor


class Boto3:
    """boto3, a thread for each request under way; downloads end where the page belongs."""

    def __init__(self, flags):
        import boto3
        from botocore.config import Config

        config = Config(
            max_pool_connections=flags.concurrency,
            retries={"max_attempts": 0},
            s3={"addressing_style": "path", "payload_signing_enabled": False},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        self.client = boto3.client(
            "s3",
            endpoint_url=flags.endpoint,
            region_name=flags.region,
            aws_access_key_id=flags.access_key,
            aws_secret_access_key=flags.secret_key,
            config=config,
        )
        self.bucket = flags.bucket
        self.pool = ThreadPoolExecutor(flags.concurrency)

    def each(self, act, names, pages):
        """The seconds that each took."""

        def timed(name, page):
            begun = time.perf_counter()
            act(name, page)
            return time.perf_counter() - begun

        return list(self.pool.map(timed, names, pages))

    def put(self, names, pages):
        return self.each(
            lambda name, page: self.client.put_object(Bucket=self.bucket, Key=name, Body=page), names, pages
        )

    def head(self, names, pages):
        return self.each(
            lambda name, page: self.client.head_object(Bucket=self.bucket, Key=name), names, pages
        )

    def get(self, names, pages):
        def fetch(name, page):
            body = self.client.get_object(Bucket=self.bucket, Key=name)["Body"]
            at = 0
            for chunk in body.iter_chunks(1 << 18):
                page[at : at + len(chunk)] = chunk
                at += len(chunk)
            assert at == len(page), f"{name} has {at} bytes"

        return self.each(fetch, names, pages)

    def remove(self, names, pages):
        return self.each(
            lambda name, page: self.client.delete_object(Bucket=self.bucket, Key=name), names, pages
        )


class Nixl:
    """NIXL's OBJ plugin; its objects are removed by boto3, since it removes none."""

    def __init__(self, flags):
        from nixl._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent("measure", nixl_agent_config(backends=[]))
        host = flags.endpoint.removeprefix("http://")
        self.agent.create_backend(
            "OBJ",
            {
                "bucket": flags.bucket,
                "endpoint_override": f"http://{host}",
                "scheme": "http",
                "region": flags.region,
                "access_key": flags.access_key,
                "secret_key": flags.secret_key,
                "use_virtual_addressing": "false",
                "req_checksum": "required",
                "num_threads": str(flags.concurrency),
            },
        )
        self.boto3 = Boto3(flags)
        self.numbers = {}
        self.memory = None

    def move(self, way, names, pages):
        import ctypes

        address = lambda page: ctypes.addressof(ctypes.c_char.from_buffer(page))
        begun = time.perf_counter()
        numbers = [self.numbers.setdefault(name, len(self.numbers)) for name in names]
        local = [(address(page), len(page), 0) for page in pages]
        if self.memory is None:
            # The same pages in every batch: registered once.
            self.memory = self.agent.register_memory(
                self.agent.get_reg_descs([(*page, "") for page in local], "DRAM")
            )
        remote = [(0, len(page), number, name) for page, number, name in zip(pages, numbers, names)]
        registered = self.agent.register_memory(self.agent.get_reg_descs(remote, "OBJ"))
        there = self.agent.get_xfer_descs([item[:3] for item in remote], "OBJ")
        here = self.agent.get_xfer_descs(local, "DRAM")
        handle = self.agent.initialize_xfer(way, here, there, "measure")
        state = self.agent.transfer(handle)
        while state != "DONE":
            assert state != "ERR", f"{way} failed"
            time.sleep(0.0001)
            state = self.agent.check_xfer_state(handle)
        self.agent.release_xfer_handle(handle)
        self.agent.deregister_memory(registered)
        return [time.perf_counter() - begun]

    def put(self, names, pages):
        return self.move("WRITE", names, pages)

    def head(self, names, pages):
        return self.boto3.head(names, pages)

    def get(self, names, pages):
        return self.move("READ", names, pages)

    def remove(self, names, pages):
        return self.boto3.remove(names, pages)


def step(act, names, pages, page_bytes):
    """One step over all names, a batch after the other."""
    cpu, begun, took = time.process_time(), time.perf_counter(), []
    for first in range(0, len(names), len(pages)):
        batch = names[first : first + len(pages)]
        took += act(batch, pages[: len(batch)])
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    took.sort()
    gb = len(names) * page_bytes / 1e9
    at = lambda percent: int(took[max(1, -(-len(took) * percent // 100)) - 1] * 1e6)
    return {
        "bytes": int(gb * 1e9),
        "seconds": seconds,
        "gb_per_s": gb / seconds,
        "pages_per_s": len(names) / seconds,
        "p50_us": at(50),
        "p99_us": at(99),
        "cpu_seconds_per_gb": cpu / gb if gb else 0.0,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=["nixl", "boto3"], required=True)
    for name, default in [
        ("endpoint", None),
        ("bucket", None),
        ("region", "us-east-1"),
        ("access-key", None),
        ("secret-key", None),
    ]:
        parser.add_argument(f"--{name}", default=default, required=default is None)
    parser.add_argument("--prefix", default="peers")
    for name, default in [("page-bytes", None), ("pages", None), ("concurrency", 16)]:
        parser.add_argument(f"--{name}", type=int, default=default, required=default is None)
    parser.add_argument("--unchecked", action="store_true")
    flags = parser.parse_args()
    # What peers log there is no part of the document.
    document, sys.stdout = sys.stdout, sys.stderr
    client = {"nixl": Nixl, "boto3": Boto3}[flags.client](flags)
    count = min(flags.pages, 8 * flags.concurrency)
    pages = [bytearray(os.urandom(flags.page_bytes)) for _ in range(count)]
    sums = [hash(bytes(page)) for page in pages]
    names = [f"{flags.prefix}/{number:08}" for number in range(flags.pages)]
    write = step(client.put, names, pages, flags.page_bytes)
    exists = step(client.head, names, pages, 0)
    for page in pages:
        page[:] = bytes(flags.page_bytes)
    read = step(client.get, names, pages, flags.page_bytes)
    same = flags.unchecked or flags.pages % count or [hash(bytes(page)) for page in pages] == sums
    assert same, "other bytes came back"
    step(client.remove, names, pages, 0)
    print(
        json.dumps(
            {
                "write": write,
                "read": read,
                "exists": exists,
                "concurrency": flags.concurrency,
                "threads": flags.concurrency,
                "page_bytes": flags.page_bytes,
            }
        ),
        file=document,
    )


main()
