//! What is asked for, as typed.

use std::path::PathBuf;

use clap::Args;
use load::content::Content;
use plan::{ExpectPlan, LengthRange, LoadPlan, RequestPlan, StatusSet};
use schema::Method;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadOptions {
    /// Ask for the URLs in this file: one a line, behind it perhaps a weight; those that begin with / are on the host of URL
    #[arg(long, value_name = "FILE", conflicts_with = "content")]
    pub urls: Option<PathBuf>,
    /// Ask for the objects of a model below URL, by their popularity, and expect their lengths: specweb99:1000, surge:5000,
    /// or even:1000,size=10KB; `serve --make-content` makes the same
    #[arg(long, value_name = "MODEL:OBJECTS")]
    pub content: Option<Content>,
    /// Send these credentials (basic authentication)
    #[arg(long, value_name = "USER:PASSWORD")]
    pub basic_auth: Option<String>,
    /// Keep cookies and send them back, each client its own
    #[arg(long)]
    pub cookies: bool,
    /// Follow up to so many redirects, one after another
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true, allow_hyphen_values = true)]
    pub follow_redirects: u8,
    /// Fail a request whose response has another status: 200, 2xx, 200-299, several between commas
    #[arg(long, value_name = "STATUS")]
    pub expect_status: Option<StatusSet>,
    /// Fail a request whose response's body has another length: 1KB, 1KB.., ..2KB, 1KB..2KB
    #[arg(long, value_name = "LENGTH")]
    pub expect_length: Option<LengthRange>,
    /// Fail a request whose response's body does not contain this
    #[arg(long, value_name = "TEXT")]
    pub expect_body: Option<String>,
}

impl WorkloadOptions {
    /// Puts into a plan what is asked for. Several URLs become requests, each in turn, with the plan's method and body.
    pub fn put(&self, urls: &[String], plan: &mut LoadPlan) {
        plan.urls = self.urls.clone();
        plan.content = self.content.map(Into::into);
        plan.basic_auth = self.basic_auth.clone();
        plan.cookies = self.cookies;
        plan.redirects = self.follow_redirects;
        plan.expect = self.expect();
        match urls {
            [] => {}
            [url] => plan.url = url.clone(),
            several => {
                let method = Some(std::mem::take(&mut plan.method)).filter(|&method| method != Method::Get);
                let request = |url: &String| RequestPlan { method, ..plan.with_body(RequestPlan::get(url)) };
                let requests = several.iter().map(request).collect();
                (plan.request, plan.body, plan.body_text) = (requests, None, None);
            }
        }
    }

    fn expect(&self) -> Option<ExpectPlan> {
        let expect = ExpectPlan {
            status: self.expect_status.clone(),
            length: self.expect_length,
            body_contains: self.expect_body.clone(),
            ..ExpectPlan::default()
        };
        (expect != ExpectPlan::default()).then_some(expect)
    }
}
