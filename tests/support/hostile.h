// Malformed inputs and the whole message that each must give.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"

namespace q2::test {

struct HostileCase {
    std::string input, message;
};

/// read(input) must throw an Error with exactly the message.
template <class F>
void expect_messages(const std::vector<HostileCase>& cases, F read) {
    for (const HostileCase& c : cases) {
        try {
            read(c.input);
            ADD_FAILURE() << "accepted: " << c.input.substr(0, 100);
        } catch (const Error& e) {
            EXPECT_EQ(c.message, e.what());
        }
    }
}

}  // namespace q2::test
