"""An HTTP/3 server of aioquic: responds to /N.bin with N bytes, and to a body with its length.

Arguments: address, port, certificate, key.
"""

import asyncio
import sys

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

ADDRESS, PORT, CERTIFICATE, KEY = sys.argv[1:]


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = None
        self.requests = {}

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic)
        if self.http is None:
            return
        for part in self.http.handle_event(event):
            if isinstance(part, HeadersReceived):
                path = dict(part.headers).get(b":path", b"/0.bin")
                self.requests[part.stream_id] = [path, 0]
            elif isinstance(part, DataReceived):
                self.requests[part.stream_id][1] += len(part.data)
            if part.stream_ended:
                self.respond(part.stream_id, *self.requests.pop(part.stream_id))

    def respond(self, stream, path, uploaded):
        body = str(uploaded).encode() if uploaded else bytes(int(path.strip(b"/").split(b".")[0]))
        self.http.send_headers(stream, [(b":status", b"200"), (b"content-length", str(len(body)).encode())])
        self.http.send_data(stream, body, end_stream=True)
        self.transmit()


async def main():
    configuration = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    configuration.load_cert_chain(CERTIFICATE, KEY)
    await serve(ADDRESS, int(PORT), configuration=configuration, create_protocol=Server)
    await asyncio.Future()


asyncio.run(main())
