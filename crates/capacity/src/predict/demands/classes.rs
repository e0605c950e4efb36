//! The classes of a plan: requests that are measured together.

use plan::{LoadPlan, Plan, RequestPlan};

/// Above this number all requests are measured together.
const CLASSES_MAX: usize = 8;

/// A class: requests of the same kind.
#[derive(Clone, Debug)]
pub struct RequestClass {
    /// Name of the class.
    pub name: String,
    /// Load of the class, without rate and length.
    pub load: LoadPlan,
}

/// The classes of a plan: each request with its share, or all as one.
pub fn classes(plan: &Plan) -> Vec<(RequestClass, f64)> {
    let requests = &plan.load.request;
    let is_plain = plan.load.session.is_empty() && plan.load.content.is_none() && plan.load.urls.is_none();
    if !is_plain || requests.len() < 2 || requests.len() > CLASSES_MAX {
        let name = match (&plan.load.url, requests.first()) {
            (url, None) if !url.is_empty() => url.clone(),
            (_, Some(request)) if requests.len() == 1 => request.label().to_owned(),
            _ => "all requests".to_owned(),
        };
        return vec![(RequestClass { name, load: plan.load.clone() }, 1.0)];
    }
    let weight = |request: &RequestPlan| request.weight.unwrap_or(1.0);
    let whole: f64 = requests.iter().map(weight).sum();
    let class = |request: &RequestPlan| {
        let mut load = plan.load.clone();
        load.choice = None;
        load.request = vec![RequestPlan { weight: None, ..request.clone() }];
        (RequestClass { name: request.label().to_owned(), load }, weight(request) / whole)
    };
    requests.iter().map(class).collect()
}
