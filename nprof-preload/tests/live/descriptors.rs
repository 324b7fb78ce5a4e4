//! Records the functions that open and close descriptors.

use std::collections::BTreeMap;

use nprof_preload::protocol::{Content, Origin, Settings};

use crate::recorder::{Process, Workshop};

fn descriptors_only(settings: &mut Settings<'_>) {
    settings.heap_period = 0;
    settings.descriptors = true;
}

/// Replays the records; returns the descriptors that are open at the end, with origin and name.
fn open_at_end(process: &Process) -> BTreeMap<i32, (Option<Origin>, String)> {
    let mut open = BTreeMap::new();
    for record in process.records() {
        match record.content {
            Content::Opened(opened) => {
                let name = String::from_utf8_lossy(opened.name).into_owned();
                assert!(!opened.capture.stack.is_empty());
                open.insert(opened.descriptor, (opened.origin, name));
            }
            Content::Closed(range) => {
                open.retain(|&number, _| !(range.first..=range.last).contains(&(number as u32)));
            }
            _ => {}
        }
    }
    open
}

const LEAKS: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
static char inherited[100];
/* Prints the open descriptors of the program; without a name it remembers those that it has inherited. */
static void report(const char *name) {
    char link[64], target[256];
    if (name) printf("%s", name);
    for (int number = 3; number < 100; number++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", number);
        if (readlink(link, target, sizeof target) <= 0) continue;
        if (inherited[number]) continue;
        if (name) printf(" %d", number);
        else inherited[number] = 1;
    }
    if (name) puts("");
}
int main(void) {
    int pair[2];
    report(0);
    sigset_t set;
    sigemptyset(&set);
    open("/dev/null", O_RDONLY);
    openat(AT_FDCWD, "/dev/zero", O_RDONLY);
    close(open("/dev/null", O_RDONLY));
    fopen("/etc/passwd", "r");
    fclose(fopen("/etc/passwd", "r"));
    opendir("/");
    closedir(opendir("/"));
    socket(AF_UNIX, SOCK_STREAM, 0);
    pipe(pair);
    pipe2(pair, O_CLOEXEC);
    close(pair[0]);
    dup(1);
    dup2(1, 40);
    dup3(1, 41, O_CLOEXEC);
    fcntl(1, F_DUPFD, 50);
    fcntl(1, F_GETFD);
    epoll_create1(0);
    eventfd(0, 0);
    timerfd_create(CLOCK_MONOTONIC, 0);
    signalfd(-1, &set, 0);
    inotify_init1(0);
    fanotify_init(0, O_RDONLY);
    pidfd_open(getpid(), 0);
    mq_open("/nprof-preload", O_CREAT | O_RDWR, 0600, (void *)0);
    mq_close(mq_open("/nprof-preload", O_RDONLY));
    mq_unlink("/nprof-preload");
    openpty(&pair[0], &pair[1], 0, 0, 0);
    memfd_create("named", 0);
    char name[] = "/tmp/nprof-preload-XXXXXX";
    mkstemp(name);
    unlink(name);
    pclose(popen("true", "r"));
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    int sent = pair[1];
    char byte = 'x';
    struct iovec data = {&byte, 1};
    char control[CMSG_SPACE(sizeof sent)];
    struct msghdr message = {0, 0, &data, 1, control, sizeof control, 0};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(header), &sent, sizeof sent);
    sendmsg(pair[0], &message, 0);
    recvmsg(pair[1], &message, 0);
    sendmsg(pair[0], &message, 0);
    struct mmsghdr messages[2] = {{message, 0}, {message, 0}};
    recvmmsg(pair[1], messages, 2, MSG_DONTWAIT, 0);
    report("open");
    close_range(30, 45, 0);
    report("open");
    open("/dev/null/x", O_RDONLY);
    close(77);
    close(-1);
    fflush(stdout);
    _exit(0);
}
"#;

#[test]
fn open_descriptors_are_those_of_the_kernel() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", LEAKS, &["-D_FORTIFY_SOURCE=2", "-O2"]).unwrap();
    let run = workshop.run(&program, &[], descriptors_only);
    assert!(run.status.success());
    let bare = std::process::Command::new(&program).output().unwrap();
    assert_eq!(
        run.output,
        String::from_utf8(bare.stdout).unwrap(),
        "the numbers differ from a run without the library"
    );
    let open = open_at_end(run.processes.first().unwrap());
    let numbers: Vec<String> = open.keys().map(ToString::to_string).collect();
    assert_eq!(format!("open {}", numbers.join(" ")), run.output.lines().last().unwrap());
    let has =
        |origin, name: &str| open.values().any(|value| value == &(Some(origin), name.to_owned()));
    assert!(
        has(Origin::File, "/dev/null")
            && has(Origin::File, "/etc/passwd")
            && has(Origin::File, "/"),
        "{open:?}"
    );
    assert!(
        has(Origin::Socket, "") && has(Origin::Pipe, "") && has(Origin::Duplicate, "1"),
        "{open:?}"
    );
    assert!(has(Origin::Process, "") && has(Origin::Queue, "/nprof-preload"), "{open:?}");
    let received = open.values().filter(|value| value.0 == Some(Origin::Received));
    assert_eq!(received.count(), 2, "recvmsg and recvmmsg: {open:?}");
}

#[test]
fn descriptors_of_vfork_children_are_not_those_of_the_parent() {
    let source = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int kept = open("/dev/null", O_RDONLY);
    if (vfork() == 0) {
        close(kept);
        dup2(1, 60);
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    int status;
    wait(&status);
    return status;
}
"#;
    let workshop = Workshop::new();
    let program = workshop.compile("cc", source, &[]).unwrap();
    let run = workshop.run(&program, &[], descriptors_only);
    assert!(run.status.success());
    assert_eq!(run.processes.len(), 2);
    let open = open_at_end(&run.processes[0]);
    assert_eq!(
        open.into_iter().collect::<Vec<_>>(),
        [(3, (Some(Origin::File), "/dev/null".to_owned()))]
    );
}
