//! Distances for thousands of clients: links, queues, loss, profiles, the wheel. No descriptor, thread or clock.
