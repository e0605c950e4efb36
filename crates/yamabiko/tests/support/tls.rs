//! Certificate authorities, certificates and TLS servers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::workspace::{Workspace, str_of};

/// A certificate authority that writes its certificates to files in a workspace.
pub struct Authority {
    folder: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, and their files.
pub struct Certificate {
    pub cert: PathBuf,
    pub key: PathBuf,
    chain: CertificateDer<'static>,
    secret: Vec<u8>,
}

impl Authority {
    /// Creates an authority and writes its certificate to `<name>.pem`.
    pub fn new(workspace: &Workspace, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let folder = workspace.path().join("out");
        fs::write(folder.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder, name: name.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// The file of the authority's certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// Signs a certificate for these names, valid until the beginning of the year `until`.
    pub fn sign(&self, names: &[&str], until: i32) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| self.folder.join(format!("{}-{}-{until}.{kind}", self.name, names[0]));
        fs::write(file("crt"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        let chain = CertificateDer::from(certificate.der().to_vec());
        Certificate { cert: file("crt"), key: file("key"), chain, secret: key.serialize_der() }
    }
}

/// The command that starts nginx with these servers: port, certificate and further configuration of each.
pub fn nginx(workspace: &Workspace, servers: &[(u16, &Certificate, &str)]) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path var/{kind};\n"))
        .concat();
    let servers: String = servers
        .iter()
        .map(|(port, certificate, more)| {
            format!(
                "    server {{ listen {port} ssl backlog=4096; ssl_certificate {}; ssl_certificate_key {}; {more} root {}; }}\n",
                str_of(&certificate.cert),
                str_of(&certificate.key),
                str_of(&workspace.www())
            )
        })
        .collect();
    let text = format!(
        "worker_processes 1;\npid var/nginx.pid;\nerror_log stderr;\nevents {{ worker_connections 4000; }}\n\
         http {{\n    access_log off;\n{temporary}{servers}\n    server {{ listen 8080; root {}; }}\n}}\n",
        str_of(&workspace.www())
    );
    let configuration = workspace.path().join("nginx-tls.conf");
    fs::write(&configuration, text).unwrap();
    format!("exec nginx -p {} -c {} -g 'daemon off;'", workspace.path().display(), configuration.display())
}

/// What a [`misbehaving_server`] does with each connection.
#[derive(Clone, Copy, Debug)]
pub enum TlsBehaviour {
    /// Reads the beginning of the handshake and closes the connection.
    ClosesInHandshake,
    /// Responds as an HTTP server without TLS.
    PlainHttp,
    /// Sends a close-delimited body and close_notify, and closes the connection.
    SendsCloseNotify,
    /// Sends a close-delimited body and closes the connection without close_notify.
    OmitsCloseNotify,
    /// Sends a body with Content-Length and closes the connection without close_notify.
    OmitsCloseNotifyWithLength,
}

/// Starts a TLS server with this behaviour on a free loopback port. It runs until the test process exits.
pub fn misbehaving_server(certificate: &Certificate, behaviour: TlsBehaviour) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.chain.clone()], PrivateKeyDer::Pkcs8(certificate.secret.clone().into()))
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            // An error means that the client closed the connection; the test checks the client.
            std::thread::spawn(move || drop(serve(stream, config, behaviour)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, config: Arc<ServerConfig>, behaviour: TlsBehaviour) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    match behaviour {
        TlsBehaviour::ClosesInHandshake => return stream.read(&mut bytes).map(drop),
        TlsBehaviour::PlainHttp => {
            let _ = stream.read(&mut bytes)?;
            return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        }
        TlsBehaviour::SendsCloseNotify | TlsBehaviour::OmitsCloseNotify | TlsBehaviour::OmitsCloseNotifyWithLength => {}
    }
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut tls = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let length = tls.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(&bytes[..length]);
    }
    let length =
        if matches!(behaviour, TlsBehaviour::OmitsCloseNotifyWithLength) { "Content-Length: 5\r\n" } else { "" };
    tls.write_all(format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\nhello").as_bytes())?;
    if matches!(behaviour, TlsBehaviour::SendsCloseNotify) {
        tls.conn.send_close_notify();
    }
    tls.flush()
}
