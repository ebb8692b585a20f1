//! Real media with their ways: tmpfs, 4096-byte sectors, read-only, full, limited.

mod stage;

use hicache_core::{Depth, ErrorKind, State, Store, Stored};
use hicache_file::{Direct, FileOptions, FileStore};
use stage::{Stage, leftovers, with_mounts};
use std::path::Path;
use std::process::Command;

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

/// Opens, stores and serves in `dir`, in each mode, aligned and not.
fn works_in(dir: &Path) {
    for (number, direct) in [Direct::Prefer, Direct::Off].into_iter().enumerate() {
        for len in [4096, 65_536, 515_328, 100] {
            let dir = dir.join(format!("{number}-{len}"));
            let options = FileOptions { direct, ..Default::default() };
            let stage = Stage::at(&dir, len, options, None).unwrap();
            for n in 0..4 {
                assert_eq!(stage.set(n).unwrap(), Stored::Written);
                assert!(stage.get(n).unwrap());
            }
            let stage = stage.reopen();
            assert!((0..4).all(|n| stage.get(n).unwrap()));
            assert!(leftovers(&dir).is_empty());
        }
    }
}

#[test]
fn a_tmpfs_works() {
    if let Some(dir) = with_mounts("a_tmpfs_works", "mount -t tmpfs none $D") {
        works_in(&dir);
    }
}

#[test]
fn a_device_with_sectors_of_4096_bytes_works_and_its_alignment_is_found() {
    let script = "truncate -s 64M $D/image; L=$(losetup -f --show -b 4096 $D/image); mkdir $D/m; \
        mkfs.ext4 -q -b 4096 $L; mount $L $D/m; losetup -d $L";
    let test = "a_device_with_sectors_of_4096_bytes_works_and_its_alignment_is_found";
    let Some(dir) = with_mounts(test, script) else { return };
    works_in(&dir.join("m"));
    let stage = Stage::at(&dir.join("m/store"), 512, FileOptions::default(), None).unwrap();
    assert_eq!(stage.backend.capabilities().alignment.bytes(), 4096);
    stage.set(1).unwrap();
    assert!(stage.get(1).unwrap());
    assert_eq!(stage.backend.stats().bounced, 2, "512 bytes are no multiple of this device's sector");
}

#[test]
fn an_overlay_and_a_tmpfs_are_read_without_waiting() {
    let test = "an_overlay_and_a_tmpfs_are_read_without_waiting";
    let script = "mkdir $D/lower $D/upper $D/work $D/both $D/memory; mount -t tmpfs memory $D/memory; \
                  mount -t overlay overlay -o lowerdir=$D/lower,upperdir=$D/upper,workdir=$D/work $D/both";
    let Some(dir) = with_mounts(test, script) else { return };
    let told = |dir: &Path| {
        works_in(dir);
        let stage = Stage::at(&dir.join("store"), 4096, FileOptions::default(), None).unwrap();
        stage.store.health().fallbacks.iter().any(|told| told.what == "nowait")
    };
    assert!(!told(&dir.join("memory")));
    assert_eq!(told(&dir.join("both")), told(&dir), "as what is below");
}

#[test]
fn a_read_only_store_serves_and_refuses_sets_clearly() {
    let script = "mount -t tmpfs none $D";
    let Some(dir) = with_mounts("a_read_only_store_serves_and_refuses_sets_clearly", script) else { return };
    let stage = Stage::at(&dir, 4096, FileOptions::default(), None).unwrap();
    stage.set(1).unwrap();
    stage.set(2).unwrap();
    std::fs::write(stage.file(2), b"damaged").unwrap();
    drop(stage);
    run("mount", &["-o", "remount,ro", dir.to_str().unwrap()]);
    let stage = Stage::at(&dir, 4096, FileOptions::default(), None).unwrap();
    assert!(!stage.store.health().writable);
    assert!(stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "writes"));
    assert!(stage.get(1).unwrap());
    assert!(!stage.get(2).unwrap(), "a damaged page is a miss where it cannot be set aside, too");
    assert!(!stage.get(2).unwrap());
    let error = stage.set(3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(stage.get(1).unwrap());
    drop(stage);
    let nothing = FileStore::open(dir.join("new"), FileOptions::default()).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::PermissionDenied, "{nothing}");
}

#[test]
fn a_directory_of_another_user_is_refused_clearly() {
    let test = "a_directory_of_another_user_is_refused_clearly";
    let Some(dir) = with_mounts(test, "mkdir -m 755 $D/s; chmod 755 $D") else { return };
    let mine = dir.join("s");
    let stage = Stage::at(&mine, 4096, FileOptions::default(), None).unwrap();
    stage.set(1).unwrap();
    stage.set(3).unwrap();
    let forbidden = stage.file(3).parent().unwrap().to_path_buf();
    std::fs::set_permissions(&forbidden, std::os::unix::fs::PermissionsExt::from_mode(0o744)).unwrap();
    stage.set(4).unwrap();
    std::fs::set_permissions(stage.file(4), std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    drop(stage);
    // As nobody from here on: root may do everything.
    let exe = std::env::current_exe().unwrap();
    let copy = dir.join("test");
    std::fs::copy(exe, &copy).unwrap();
    let status = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["--exact", "as_nobody", "--nocapture", "--test-threads=1"])
        .env("HICACHE_TEST_NOBODY", &mine)
        .status();
    match status {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(_) => stage::skip(test, "needs setpriv of util-linux"),
    }
}

/// The part of the test above that runs as another user.
#[test]
fn as_nobody() {
    let Some(dir) = std::env::var_os("HICACHE_TEST_NOBODY") else { return };
    let stage = Stage::at(Path::new(&dir), 4096, FileOptions::default(), None).unwrap();
    assert!(stage.get(1).unwrap(), "what may be read is served");
    let on_disk = stage.store.health().fallbacks.iter().all(|fallback| fallback.what != "direct");
    assert!(
        on_disk,
        "who may only read reads as directly as who may write: {:?}",
        stage.store.health().fallbacks
    );
    assert_eq!(stage.backend.stats().direct, 1);
    assert_eq!(stage.set(2).unwrap_err().kind(), ErrorKind::PermissionDenied);
    let finds = stage.scan(Depth::Contents, false);
    let unreadable = finds.iter().filter(|found| matches!(found.state, State::Unreadable(_))).count();
    assert_eq!(unreadable, 2, "what may not be read is not called sound, nor absent: {finds:?}");
    let locked = stage.file(4);
    let locked = finds.iter().find(|found| Path::new(&found.place) == locked).unwrap();
    assert!(format!("{locked:?}").contains("check its owner and its mode"), "{locked:?}");
    for (n, blamed) in [(3, "mode of the directory"), (4, "mode of the file")] {
        let error = stage.get(n).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(blamed), "{error}");
    }
    let dir = Path::new(&dir).join("new");
    assert_eq!(FileStore::open(dir, FileOptions::default()).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn b040_a_disk_that_fills_up_refuses_the_page_whole_and_takes_it_later() {
    let script = "mount -t tmpfs -o size=2m none $D";
    let test = "b040_a_disk_that_fills_up_refuses_the_page_whole_and_takes_it_later";
    let Some(dir) = with_mounts(test, script) else { return };
    let ballast = dir.join("lost+found");
    let stage = Stage::at(&dir, 600_000, FileOptions::default(), None).unwrap();
    stage.set(1).unwrap();
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let space = || {
        String::from_utf8(Command::new("stat").args(["-f", "-c", "%f"]).arg(&dir).output().unwrap().stdout)
    };
    let before = space().unwrap();
    for _ in 0..3 {
        let error = stage.set(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(error.to_string().contains("full"), "{error}");
    }
    assert_eq!(space().unwrap(), before, "nothing of it stays");
    assert!(!stage.exists(2) && stage.get(1).unwrap());
    drop(stage);
    // Fuller still, and opened anew: what is there is served.
    while std::fs::OpenOptions::new()
        .append(true)
        .open(&ballast)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 4096]))
        .is_ok()
    {}
    let stage = Stage::at(&dir, 600_000, FileOptions::default(), None).unwrap();
    assert!(stage.get(1).unwrap());
    assert_eq!(stage.set(2).unwrap_err().kind(), ErrorKind::NoSpace);
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(stage.set(2).unwrap(), Stored::Written);
    assert!(stage.get(2).unwrap());
}

#[test]
fn b051_a_disk_without_inodes_says_so() {
    let script = "mount -t tmpfs -o size=8m,nr_inodes=6 none $D";
    let Some(dir) = with_mounts("b051_a_disk_without_inodes_says_so", script) else { return };
    let stage = Stage::at(&dir, 4096, FileOptions::default(), None).unwrap();
    // The root folder, the marker, ns, the namespace and its record leave one.
    let error = (0..8).find_map(|n| stage.set(n).err()).expect("no inodes are left at some page");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.to_string().contains("inodes"), "{error}");
    drop(stage);
    let stage = Stage::at(&dir, 4096, FileOptions::default(), None).unwrap();
    assert!(!stage.get(0).unwrap());
}

#[test]
fn b040_a_file_size_limit_is_too_large() {
    if !stage::in_child("b040_a_file_size_limit_is_too_large") {
        return;
    }
    let stage = Stage::new(3 << 20);
    stage.set(0).unwrap();
    let pid = format!("--pid={}", std::process::id());
    if !Command::new("prlimit")
        .args([&pid, "--fsize=1048576:1048576"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return stage::skip("b040_a_file_size_limit_is_too_large", "needs prlimit of util-linux");
    }
    let error = stage.set(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(!stage.exists(1) && stage.get(0).unwrap());
    assert!(leftovers(&stage.dir).is_empty());
}

#[test]
fn a_file_system_without_unnamed_files_gets_temporary_names_and_keeps_none() {
    let rule = stage::seam(|call, _| {
        (call == hicache_file::SysCall::OpenUnnamed).then_some(hicache_file::Verdict::Fail(libc::EOPNOTSUPP))
    });
    for no_rename in [false, true] {
        let rule = rule.clone().map(|_| {
            hicache_file::Seam::new(move |call, _| match call {
                hicache_file::SysCall::OpenUnnamed => hicache_file::Verdict::Fail(libc::EOPNOTSUPP),
                hicache_file::SysCall::Rename if no_rename => hicache_file::Verdict::Fail(libc::EINVAL),
                _ => hicache_file::Verdict::Pass,
            })
        });
        let stage = Stage::with(65_536, FileOptions::default(), rule);
        assert!(stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "unnamed_files"));
        for n in 0..10 {
            assert_eq!(stage.set(n).unwrap(), Stored::Written);
            assert_eq!(stage.set(n).unwrap(), Stored::Present);
            assert!(stage.get(n).unwrap());
        }
        let dir = stage.dir.clone();
        let own: Vec<_> = leftovers(&dir);
        assert!(own.iter().all(|file| file.extension().is_some_and(|ext| ext == "lock")), "{own:?}");
        let stage = stage.reopen();
        assert!((0..10).all(|n| stage.get(n).unwrap()));
        assert!(leftovers(&dir).is_empty(), "{:?}", leftovers(&dir));
    }
}
