//! A classic BPF program that the kernel runs on every packet: selects packets, and how many bytes of each are
//! captured.
//!
//! Loads are relative to the network header (SKF_NET_OFF), so one program serves Ethernet, loopback and TUN. Its return
//! value is the number of bytes captured, 0 for none. Packets that the filter cannot classify with certainty (later
//! fragments, IPv6 extension headers, a second VLAN tag) are captured: the analysis classifies them.
//!
//! Source: Linux `Documentation/networking/filter.rst`; McCanne and Jacobson, 1993.

use std::net::IpAddr;

/// One instruction, in the kernel's format.
pub(super) type Instruction = libc::sock_filter;

/// The program for TCP and UDP with one of `ports` at one of `hosts` at either end; no ports, or no hosts, means any. Without
/// both, every packet of any protocol is captured.
pub(super) fn program(ports: &[u16], hosts: &[IpAddr], snap: u32) -> Vec<Instruction> {
    let mut code = Assembler::default();
    if ports.is_empty() && hosts.is_empty() {
        code.put(RETURN, snap);
        return code.assemble();
    }
    code.put(LOAD_WORD, ETHERTYPE);
    code.jump_if(ETHERTYPE_IPV4, Label::V4);
    code.jump_if(ETHERTYPE_IPV6, Label::V6);
    for tag in [0x8100, 0x88A8] {
        code.jump_if(tag, Label::Keep);
    }
    code.jump(Label::Drop);

    code.mark(Label::V4);
    code.put(LOAD_BYTE, NETWORK + 9);
    code.jump_if(TCP, Label::HostsV4);
    code.jump_unless(UDP, Label::Drop);
    code.mark(Label::HostsV4);
    if !hosts.is_empty() {
        for at in [12, 16] {
            code.put(LOAD_WORD, NETWORK + at);
            for host in hosts {
                if let IpAddr::V4(host) = host {
                    code.jump_if(u32::from(*host), Label::PortsV4);
                }
            }
        }
        code.jump(Label::Drop);
    }
    code.mark(Label::PortsV4);
    code.put(LOAD_HALF, NETWORK + 6);
    code.jump_if_any(FRAGMENT_OFFSET, Label::Keep);
    code.put(LOAD_HEADER_LENGTH, NETWORK);
    ports_of(&mut code, ports, LOAD_HALF_INDEXED, NETWORK);

    code.mark(Label::V6);
    if !hosts.is_empty() {
        for at in [8, 24] {
            for host in hosts {
                if let IpAddr::V6(host) = host {
                    code.jump_if_equal_v6(NETWORK + at, host.octets(), Label::PortsV6);
                }
            }
        }
        code.jump(Label::Drop);
    }
    code.mark(Label::PortsV6);
    code.put(LOAD_BYTE, NETWORK + 6);
    for extension in [0, 43, 44, 51, 60] {
        code.jump_if(extension, Label::Keep);
    }
    code.jump_if(TCP, Label::TransportV6);
    code.jump_unless(UDP, Label::Drop);
    code.mark(Label::TransportV6);
    ports_of(&mut code, ports, LOAD_HALF, NETWORK + 40);

    code.mark(Label::Keep);
    code.put(RETURN, snap);
    code.mark(Label::Drop);
    code.put(RETURN, 0);
    code.assemble()
}

/// A program that captures nothing.
pub(super) fn nothing() -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.put(RETURN, 0);
    code.assemble()
}

fn ports_of(code: &mut Assembler, ports: &[u16], load: u16, tcp_at: u32) {
    if ports.is_empty() {
        return code.jump(Label::Keep);
    }
    for at in [0, 2] {
        code.put(load, tcp_at.wrapping_add(at));
        for &port in ports {
            code.jump_if(u32::from(port), Label::Keep);
        }
    }
    code.jump(Label::Drop);
}

/// Jump targets, all of them forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    V4,
    V6,
    HostsV4,
    PortsV4,
    PortsV6,
    TransportV6,
    Keep,
    Drop,
}

/// Instructions, with jumps still symbolic. Conditional jumps reach only 255 instructions, so each one skips or takes
/// an unconditional jump behind it, which reaches any target.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn put(&mut self, code: u16, k: u32) {
        self.code.push(Instruction { code, jt: 0, jf: 0, k });
    }

    fn test(&mut self, code: u16, k: u32, jt: u8, jf: u8) {
        self.code.push(Instruction { code, jt, jf, k });
    }

    fn mark(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(JUMP, 0);
    }

    fn jump_if(&mut self, k: u32, to: Label) {
        self.test(JUMP_EQUAL, k, 0, 1);
        self.jump(to);
    }

    fn jump_unless(&mut self, k: u32, to: Label) {
        self.test(JUMP_EQUAL, k, 1, 0);
        self.jump(to);
    }

    fn jump_if_any(&mut self, bits: u32, to: Label) {
        self.test(JUMP_ANY_BIT, bits, 0, 1);
        self.jump(to);
    }

    /// Compares the four words of an address; the first difference skips the comparison.
    fn jump_if_equal_v6(&mut self, at: u32, octets: [u8; 16], to: Label) {
        let (words, _) = octets.as_chunks::<4>();
        for (index, word) in words.iter().enumerate() {
            self.put(LOAD_WORD, at.wrapping_add(4 * index as u32));
            // Two instructions per word, and the jump.
            let rest = (words.len() - 1 - index) as u8 * 2 + 1;
            self.test(JUMP_EQUAL, u32::from_be_bytes(*word), 0, rest);
        }
        self.jump(to);
    }

    fn assemble(mut self) -> Vec<Instruction> {
        for (at, to) in self.jumps {
            let (_, target) = self.labels.iter().find(|(label, _)| *label == to).expect("every label is marked");
            self.code[at].k = (target - at - 1) as u32;
        }
        self.code
    }
}

/// Offset relative to which the kernel counts from the network header.
const NETWORK: u32 = libc::SKF_NET_OFF as u32;
/// Offset at which the kernel provides the EtherType, for any link layer.
const ETHERTYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86DD;
const TCP: u32 = 6;
const UDP: u32 = 17;
const FRAGMENT_OFFSET: u32 = 0x1FFF;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF_INDEXED: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_IND) as u16;
/// X = 4 * (byte & 15): the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program on an IP packet, for the few instructions used here.
    fn run(program: &[Instruction], ethertype: u32, packet: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0usize, 0usize);
        loop {
            let Instruction { code, jt, jf, k } = program[at];
            let offset = k.wrapping_sub(NETWORK) as usize;
            let read = |at: usize, bytes: usize| -> Option<u32> {
                Some(packet.get(at..at + bytes)?.iter().fold(0, |word, &byte| word << 8 | u32::from(byte)))
            };
            let loaded = match code {
                LOAD_WORD if k == ETHERTYPE => Some(ethertype),
                LOAD_WORD => read(offset, 4),
                LOAD_HALF => read(offset, 2),
                LOAD_BYTE => read(offset, 1),
                LOAD_HALF_INDEXED => read(x + offset, 2),
                LOAD_HEADER_LENGTH => {
                    x = packet.get(offset).map_or(0, |byte| usize::from(byte & 15) * 4);
                    Some(a)
                }
                _ => Some(a),
            };
            // A load beyond the packet ends the program with 0.
            let Some(value) = loaded else { return 0 };
            a = value;
            at += 1 + match code {
                JUMP => k as usize,
                JUMP_EQUAL => usize::from(if a == k { jt } else { jf }),
                JUMP_ANY_BIT => usize::from(if a & k != 0 { jt } else { jf }),
                RETURN => return k,
                _ => 0,
            };
        }
    }

    fn v4(protocol: u8, fragment: u16, options: usize, source: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x45 + options as u8, 0, 0, 60, 0, 0];
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0]);
        packet.extend(source);
        packet.extend([10, 0, 0, 2]);
        packet.resize(20 + options * 4, 0);
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet
    }

    fn v6(next: u8, source: [u8; 16], ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 20, next, 64];
        packet.extend(source);
        packet.extend([0xFE; 16]);
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet
    }

    #[test]
    fn filter_without_ports_and_hosts_captures_all_packets() {
        assert_eq!(run(&program(&[], &[], 128), 0x0806, &[]), 128);
        assert_eq!(run(&nothing(), ETHERTYPE_IPV4, &v4(6, 0, 0, [10, 0, 0, 1], [80, 1])), 0);
    }

    #[test]
    fn filter_matches_ports_at_both_ends_and_behind_ip_options() {
        let program = program(&[80, 8080], &[], 96);
        for (packet, captured) in [
            (v4(6, 0, 0, [10, 0, 0, 1], [40_000, 80]), 96),
            (v4(6, 0, 0, [10, 0, 0, 1], [8080, 40_000]), 96),
            (v4(6, 0, 10, [10, 0, 0, 1], [40_000, 80]), 96),
            (v4(6, 0, 0, [10, 0, 0, 1], [40_000, 81]), 0),
            (v4(17, 0, 0, [10, 0, 0, 1], [40_000, 80]), 96),
            (v4(17, 0, 0, [10, 0, 0, 1], [40_000, 81]), 0),
            (v4(1, 0, 0, [10, 0, 0, 1], [40_000, 80]), 0),
            // The first fragment has the ports, a later one does not.
            (v4(6, 0x2000, 0, [10, 0, 0, 1], [40_000, 81]), 0),
            (v4(6, 0x2010, 0, [10, 0, 0, 1], [0, 0]), 96),
        ] {
            assert_eq!(run(&program, ETHERTYPE_IPV4, &packet), captured, "{packet:?}");
        }
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(6, [1; 16], [80, 5])), 96);
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(6, [1; 16], [81, 5])), 0);
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(0, [1; 16], [0, 0])), 96, "extension headers");
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(17, [1; 16], [80, 5])), 96);
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(58, [1; 16], [80, 5])), 0);
        assert_eq!(run(&program, 0x0806, &[]), 0);
        assert_eq!(run(&program, 0x8100, &[]), 96);
    }

    #[test]
    fn filter_matches_hosts_at_both_ends() {
        let mut six = [0; 16];
        six[15] = 7;
        let program = program(&[80], &["10.0.0.1".parse().unwrap(), IpAddr::from(six)], 1);
        let matches = |source| run(&program, ETHERTYPE_IPV4, &v4(6, 0, 0, source, [5, 80]));
        assert_eq!((matches([10, 0, 0, 1]), matches([10, 0, 0, 3])), (1, 0));
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(6, six, [5, 80])), 1);
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(6, [7; 16], [5, 80])), 0);
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(6, six, [5, 81])), 0);
    }

    #[test]
    fn filter_with_a_thousand_ports_has_valid_jumps() {
        let ports: Vec<u16> = (1..=900).collect();
        let program = program(&ports, &[], 7);
        assert_eq!(run(&program, ETHERTYPE_IPV4, &v4(6, 0, 0, [1; 4], [901, 1])), 7);
        assert_eq!(run(&program, ETHERTYPE_IPV6, &v6(6, [1; 16], [902, 901])), 0);
    }
}
