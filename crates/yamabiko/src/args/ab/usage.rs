//! What `yamabiko ab -h` prints.

/// The options, in ab's order.
pub const USAGE: &str = "\
Usage: yamabiko ab [options] [http[s]://]hostname[:port]/path
Options are ApacheBench's:
    -n requests     Requests to make (1)
    -c concurrency  Connections at a time (1)
    -t timelimit    Seconds to spend at most; implies -n 50000 (a later -n holds)
    -s timeout      Seconds to wait for a response at most (30)
    -p postfile     POST this file; see also -T
    -u putfile      PUT this file; see also -T
    -T content-type Type of the file (text/plain)
    -v verbosity    2: the request and warnings; 3: status codes; 4: the first response's head
    -w              Print a table of HTML
    -i              Use HEAD
    -x attributes   Attributes of <table>; implies -w
    -y attributes   Attributes of <tr>; implies -w
    -z attributes   Attributes of <td> and <th>; implies -w
    -C attribute    Add a cookie, such as Apache=1234 (repeatable)
    -H attribute    Add a header line, such as 'Accept-Encoding: gzip' (repeatable)
    -A attribute    Basic authentication, user:password
    -P attribute    Basic authentication with the proxy, user:password
    -X proxy:port   Ask this proxy (http URLs)
    -V              Print the version and end
    -k              Keep connections open between requests
    -d              No table of percentiles
    -S              No deviations and medians
    -q              No progress when doing more than 150 requests
    -l              Responses may differ in length
    -g filename     Write every request's times, tab-separated
    -e filename     Write the time within which each percent was served, as CSV
    -r              Go on after errors of receiving
    -m method       Another method
    -h              Print this
    -f protocol     TLS1.2, TLS1.3 or ALL
    -E certfile     The client's certificate chain and private key, PEM
docs/concepts/ab.md says where figures differ from ApacheBench's, and why.
";
