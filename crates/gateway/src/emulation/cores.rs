//! Which cores the emulated gateway, its links and the programs at its ends run on.

use plan::Placement;
use sys::sched::Cores;

use super::At;

/// Assignment of cores; `None`: placed by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EmulationCores {
    gateway: Option<Cores>,
    client: Option<Cores>,
    server: Option<Cores>,
    loops: [Option<Cores>; 2],
}

impl EmulationCores {
    /// The gateway has the first core exclusively, the links have the last; the ends have others if available.
    pub(super) fn new(placement: Placement, allowed: &Cores) -> Self {
        let cores = allowed.list();
        let one = |core: usize| Some(Cores::new(vec![core]));
        match *cores {
            _ if placement == Placement::Float => EmulationCores::default(),
            [gateway, others] => EmulationCores {
                gateway: one(gateway),
                client: one(others),
                server: one(others),
                loops: [one(others), one(others)],
            },
            [gateway, ends, links] => EmulationCores {
                gateway: one(gateway),
                client: one(ends),
                server: one(ends),
                loops: [one(links), one(links)],
            },
            [gateway, server, client, links] => EmulationCores {
                gateway: one(gateway),
                client: one(client),
                server: one(server),
                loops: [one(links), one(links)],
            },
            [gateway, server, ref clients @ .., second, first] if !clients.is_empty() => EmulationCores {
                gateway: one(gateway),
                client: Some(Cores::new(clients.to_vec())),
                server: one(server),
                loops: [one(first), one(second)],
            },
            _ => EmulationCores::default(),
        }
    }

    pub(super) fn of(&self, at: At) -> Option<&Cores> {
        match at {
            At::Clients => self.client.as_ref(),
            At::Gateway => self.gateway.as_ref(),
            At::Server => self.server.as_ref(),
        }
    }

    pub(super) fn loops(&self) -> [Option<Cores>; 2] {
        self.loops.clone()
    }

    pub(super) fn describe(&self) -> String {
        match (&self.gateway, &self.client, &self.server, &self.loops) {
            (Some(gateway), Some(client), Some(server), [Some(a), Some(b)]) => {
                format!("gateway on core {gateway}, links on {a} and {b}, clients on {client}, server on {server}")
            }
            _ => "placed by the kernel".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(cores: usize) -> EmulationCores {
        EmulationCores::new(Placement::Split, &Cores::new((0..cores).collect()))
    }

    #[test]
    fn gateway_core_is_exclusive() {
        assert_eq!((division(1), EmulationCores::new(Placement::Float, &Cores::new(vec![0, 1]))), Default::default());
        for cores in 2..9 {
            let division = division(cores);
            let gateway = division.gateway.clone().unwrap();
            let others = [&division.client, &division.server, &division.loops[0], &division.loops[1]];
            for other in others {
                let other = other.clone().unwrap();
                assert!(
                    !other.list().is_empty() && !other.list().contains(&gateway.list()[0]),
                    "{cores} cores: {other}"
                );
            }
        }
        assert_eq!(division(6).describe(), "gateway on core 0, links on 5 and 4, clients on 2-3, server on 1");
    }
}
