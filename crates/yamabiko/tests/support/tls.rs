//! Authorities, certificates and servers that speak TLS.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::workspace::{Workspace, str_of};

/// A certificate authority, its certificates, and their files in a workspace.
pub struct Authority {
    folder: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in files.
pub struct Certificate {
    pub cert: PathBuf,
    pub key: PathBuf,
    chain: CertificateDer<'static>,
    secret: Vec<u8>,
}

impl Authority {
    /// A new one; its certificate is in `<name>.pem`.
    pub fn new(workspace: &Workspace, name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let folder = workspace.path().join("out");
        fs::write(folder.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { folder, name: name.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// The file of its certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// A certificate for these names, good until the year `until`.
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

/// The command that starts nginx with these servers, each a port, a certificate and more of its configuration.
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

/// What a server of [`odd`] does with each connection.
#[derive(Clone, Copy, Debug)]
pub enum Manners {
    /// Reads the beginning of the handshake and closes.
    Hangs,
    /// Responds as a plain HTTP server.
    Plain,
    /// Responds with a close-delimited body, sends close_notify, closes.
    Polite,
    /// The same without close_notify.
    Rude,
    /// A body with its length, and no close_notify.
    RudeButWhole,
}

/// A server with bad manners, on a port of the host's loopback. It serves as long as the test's process lives.
pub fn odd(certificate: &Certificate, manners: Manners) -> SocketAddr {
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
            // What the client does to it is the test's matter.
            std::thread::spawn(move || drop(serve(stream, config, manners)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, config: Arc<ServerConfig>, manners: Manners) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    match manners {
        Manners::Hangs => return stream.read(&mut bytes).map(drop),
        Manners::Plain => {
            let _ = stream.read(&mut bytes)?;
            return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        }
        Manners::Polite | Manners::Rude | Manners::RudeButWhole => {}
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
    let length = if matches!(manners, Manners::RudeButWhole) { "Content-Length: 5\r\n" } else { "" };
    tls.write_all(format!("HTTP/1.1 200 OK\r\n{length}Connection: close\r\n\r\nhello").as_bytes())?;
    if matches!(manners, Manners::Polite) {
        tls.conn.send_close_notify();
    }
    tls.flush()
}
