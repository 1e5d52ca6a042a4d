// The quartet2 program as a user runs it: arguments in, exit code and both outputs out.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

namespace q2::test {

struct Finished {
    int code = -1;  ///< -1: ended by a signal
    std::string out, err;
};

class Program {
  public:
    /// `environment`: NAME=value each, before this process's own.
    explicit Program(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
        arguments.insert(arguments.begin(), QUARTET2_BINARY);
        for (char** own = environ; *own; ++own) environment.push_back(*own);
        const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
        const std::string out = folder_ / "out", err = folder_ / "err";
        process_ = ::fork();
        if (process_ != 0) return;
        redirect(out, STDOUT_FILENO);
        redirect(err, STDERR_FILENO);
        ::execve(argv[0], argv.data(), envp.data());
        ::_exit(127);
    }
    ~Program() {
        if (process_ <= 0) return;
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void send(int signal) { ::kill(process_, signal); }
    bool running() const {
        siginfo_t info = {};
        return ::waitid(P_PID, id_t(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
    }
    Finished wait() {
        int status = 0;
        ::waitpid(process_, &status, 0);
        process_ = -1;
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(folder_ / "out"),
                read_bytes(folder_ / "err")};
    }

  private:
    static std::vector<char*> pointers(std::vector<std::string>& texts) {
        std::vector<char*> all;
        for (std::string& text : texts) all.push_back(text.data());
        all.push_back(nullptr);
        return all;
    }
    static void redirect(const std::string& path, int descriptor) {
        ::dup2(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), descriptor);
    }

    TempFolder folder_;
    pid_t process_ = -1;
};

inline Finished run_program(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    return Program(std::move(arguments), std::move(environment)).wait();
}

/// The program must fail with this code and one line on stderr that contains every part.
inline void expect_failure(const std::vector<std::string>& arguments, Exit code,
                           std::initializer_list<std::string> parts) {
    std::string command = "quartet2";
    for (const std::string& a : arguments) command += " " + a;
    SCOPED_TRACE(command);
    const Finished f = run_program(arguments);
    EXPECT_EQ(f.code, int(code)) << f.err;
    EXPECT_EQ(f.out, "");
    EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1) << f.err;
    EXPECT_TRUE(f.err.starts_with("quartet2: ")) << f.err;
    for (const std::string& part : parts) EXPECT_NE(f.err.find(part), std::string::npos) << f.err;
}

}  // namespace q2::test
