//! System calls that the kernel refuses to this process, by a seccomp filter, as a container's profile would.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

pub(crate) const MBIND: Refused = (libc::SYS_mbind, None);
pub(crate) const SET_MEMPOLICY: Refused = (libc::SYS_set_mempolicy, None);
pub(crate) const GET_MEMPOLICY: Refused = (libc::SYS_get_mempolicy, None);
pub(crate) const MEMFD_CREATE: Refused = (libc::SYS_memfd_create, None);
pub(crate) const MLOCK: Refused = (libc::SYS_mlock2, None);
pub(crate) const POPULATE: Refused = (libc::SYS_madvise, Some((2, libc::MADV_POPULATE_WRITE as u64)));
pub(crate) const CLONE: Refused = (libc::SYS_clone, None);
pub(crate) const CLONE3: Refused = (libc::SYS_clone3, None);

/// A call's number, and the value of one of its arguments (from 0) if only such calls are meant.
pub(crate) type Refused = (libc::c_long, Option<(u8, u64)>);

/// Has the kernel answer these calls with `errno`, for this thread and those that it starts, until it ends: so only
/// in a child process.
pub(crate) fn refuse(calls: &[Refused], errno: i32) {
    let rules = calls.iter().map(|(call, argument)| {
        let rule = argument.map(|(index, value)| {
            let equals =
                SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap();
            SeccompRule::new(vec![equals]).unwrap()
        });
        (*call, rule.into_iter().collect())
    });
    let filter = SeccompFilter::new(
        rules.collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
