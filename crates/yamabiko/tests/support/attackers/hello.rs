//! A ClientHello that makes a TLS 1.3 server do all its work: key exchange, certificate, signature.

/// A ClientHello record (RFC 8446, section 4.1.2). The key share needs no secret key: any 32 bytes are a valid x25519
/// point.
pub fn client_hello() -> Vec<u8> {
    let mut extensions = Vec::new();
    // server_name: `server`
    extension(&mut extensions, 0, &[&[0, 9, 0, 0, 6][..], b"server"].concat());
    // supported_groups: x25519
    extension(&mut extensions, 10, &[0, 2, 0, 29]);
    // signature_algorithms: ECDSA and RSA-PSS with SHA-256, Ed25519
    extension(&mut extensions, 13, &[0, 6, 4, 3, 8, 4, 8, 7]);
    // supported_versions: TLS 1.3
    extension(&mut extensions, 43, &[2, 3, 4]);
    // key_share: x25519
    extension(&mut extensions, 51, &[&[0, 36, 0, 29, 0, 32][..], &[9; 32]].concat());
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    // A session id of 32 bytes, as browsers send for compatibility; one cipher suite; no compression.
    body.push(32);
    body.extend_from_slice(&[8; 32]);
    body.extend_from_slice(&[0, 2, 0x13, 0x01, 1, 0]);
    vector(&mut body, &extensions);
    let mut hello = vec![22, 3, 1];
    let mut message = vec![1, 0];
    vector(&mut message, &body);
    vector(&mut hello, &message);
    hello
}

fn extension(out: &mut Vec<u8>, kind: u16, content: &[u8]) {
    out.extend_from_slice(&kind.to_be_bytes());
    vector(out, content);
}

/// Appends the length of `content` as two bytes, then `content`.
fn vector(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(&(content.len() as u16).to_be_bytes());
    out.extend_from_slice(content);
}
