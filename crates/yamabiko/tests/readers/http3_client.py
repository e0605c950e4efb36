"""An HTTP/3 client of aioquic: requests files over two connections, the second with early data if the server allows it.

Arguments: address, port, file of the authority, then paths. Prints a line of JSON for each connection. Secrets are
appended to the file that SSLKEYLOGFILE names.
"""

import asyncio
import hashlib
import json
import os
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

ADDRESS, PORT, AUTHORITY, *PATHS = sys.argv[1:]


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.responses = {}

    def request(self, method, path, content=b""):
        stream = self._quic.get_next_available_stream_id()
        head = {":method": method, ":scheme": "https", ":authority": f"server:{PORT}", ":path": path}
        fields = [(name.encode(), value.encode()) for name, value in head.items()]
        self.http.send_headers(stream, fields, end_stream=not content)
        if content:
            self.http.send_data(stream, content, end_stream=True)
        response = self.responses[stream] = {"fields": {}, "body": hashlib.sha256(), "bytes": 0}
        response["ended"] = asyncio.get_running_loop().create_future()
        self.transmit()
        return response

    def quic_event_received(self, event):
        for part in self.http.handle_event(event):
            response = self.responses[part.stream_id]
            if isinstance(part, HeadersReceived):
                response["fields"].update((name.decode(), value.decode()) for name, value in part.headers)
            elif isinstance(part, DataReceived):
                response["body"].update(part.data)
                response["bytes"] += len(part.data)
            if part.stream_ended:
                response["ended"].set_result(None)


async def main():
    tickets = []
    for has_ticket in [False, True]:
        configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="server")
        configuration.load_verify_locations(AUTHORITY)
        if "SSLKEYLOGFILE" in os.environ:
            configuration.secrets_log_file = open(os.environ["SSLKEYLOGFILE"], "a")
        configuration.session_ticket = tickets[0] if has_ticket else None
        async with connect(
            ADDRESS,
            int(PORT),
            configuration=configuration,
            create_protocol=Client,
            session_ticket_handler=tickets.append,
            wait_connected=not has_ticket,
        ) as client:
            responses = [client.request("GET", path) for path in PATHS]
            await asyncio.wait_for(asyncio.gather(*(response["ended"] for response in responses)), 60)
            posted = client.request("POST", PATHS[0], b"content")
            await asyncio.wait_for(posted["ended"], 60)
            said = [[got["fields"][":status"], got["bytes"], got["body"].hexdigest()] for got in responses]
            print(json.dumps({"early": client._quic.tls.early_data_accepted, "responses": said,
                              "posted": posted["fields"][":status"]}))


asyncio.run(main())
