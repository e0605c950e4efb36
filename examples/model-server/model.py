#!/usr/bin/env python3
"""A web server of known capacity: so many workers, each request so long at one of them.

A worker is a token that remembers when it will be free. A request takes the token that is free first, holds it from then (or from now)
for its service time, and is answered when that is over. The moments are absolute: a late wake-up makes one answer late, and loses no
work, so the capacity is workers / service time whatever the machine does.
"""

import argparse
import asyncio
import heapq
import signal


def arguments():
    parser = argparse.ArgumentParser(description="A web server of known capacity, with faults on request.")
    parser.add_argument("--listen", default="127.0.0.1:8080", help="address and port")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--service", type=float, default=0.020, help="seconds of each request at a worker")
    parser.add_argument("--slower", type=float, default=0.0, help="the service time grows by this share of itself a second")
    parser.add_argument("--stall", default="", help="STILL/PERIOD in seconds: nothing begins in the first of each of the second")
    parser.add_argument("--leak", type=float, default=0.0, help="bytes kept a second")
    parser.add_argument("--connections", type=int, default=0, help="open at once at most; any other is closed (0: as many as come)")
    parser.add_argument("--accept", type=float, default=0.0, help="seconds of a worker that each new connection is, besides its requests")
    parser.add_argument("--body", type=int, default=512, help="bytes of a body")
    return parser.parse_args()


class Model:
    def __init__(self, typed):
        self.free = [0.0] * typed.workers
        self.service, self.slower, self.leak = typed.service, typed.slower, typed.leak
        self.still, self.period = (float(part) for part in typed.stall.split("/")) if typed.stall else (0.0, 1.0)
        self.most, self.accept, self.open = typed.connections, typed.accept, 0
        self.begun = asyncio.get_running_loop().time()
        self.kept = []
        body = b"x" * typed.body
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def done_at(self, besides=0.0):
        """When a request that comes now is done; `besides`: what it is more than its own work."""
        now = asyncio.get_running_loop().time()
        begins = max(now, heapq.heappop(self.free)) - self.begun
        if begins % self.period < self.still:
            begins += self.still - begins % self.period
        done = self.begun + begins + (self.service + besides) * (1.0 + self.slower * begins)
        heapq.heappush(self.free, done)
        return done

    async def serve(self, reader, writer):
        if self.most and self.open >= self.most:
            writer.close()
            return
        self.open += 1
        besides = self.accept
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                wait = self.done_at(besides) - asyncio.get_running_loop().time()
                besides = 0.0
                await asyncio.sleep(max(wait, 0.0))
                writer.write(self.answer)
                if b"connection: close" in head.lower():
                    await writer.drain()
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def forget_nothing(self):
        while self.leak:
            await asyncio.sleep(0.1)
            self.kept.append(bytearray(b"\x01" * int(self.leak / 10)))


async def main(typed):
    model = Model(typed)
    host, port = typed.listen.rsplit(":", 1)
    server = await asyncio.start_server(model.serve, host.strip("[]"), int(port), backlog=4096)
    print("listening on %s" % typed.listen, flush=True)
    end = asyncio.get_running_loop().create_future()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, lambda: end.done() or end.set_result(None))
    leak = asyncio.ensure_future(model.forget_nothing())
    await end
    leak.cancel()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
