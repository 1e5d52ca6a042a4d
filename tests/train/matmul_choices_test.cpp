#include "train/matmul_choices.h"

#include <gtest/gtest.h>

namespace q2::test {
namespace {

TEST(MatmulChoices, ComeBackFromJson) {
    MatmulChoice a, b;
    a.product = {1, -2, INT64_MAX, INT64_MIN, 5, 6, 7, 8, 9, 10};
    a.algorithm = {0, 1, UINT64_MAX, 0x0123456789abcdefu, 4, 5, 6, 7};
    const nlohmann::json json = nlohmann::json::parse(choices_to_json({a, b}).dump());
    const std::vector<MatmulChoice> back = choices_from_json(json, "manifest.json");
    ASSERT_EQ(back.size(), 2u);
    EXPECT_EQ(back[0].product, a.product);
    EXPECT_EQ(back[0].algorithm, a.algorithm);
    EXPECT_EQ(back[1].product, b.product);
}

TEST(MatmulChoices, RefuseWhatIsNotAChoice) {
    const nlohmann::json good = choices_to_json({MatmulChoice{}});
    std::vector<nlohmann::json> bad(6, good);
    bad[0] = nlohmann::json::object();
    bad[1][0].erase("product");
    bad[2][0]["product"].push_back(1);
    bad[3][0]["product"][0] = 1.5;
    bad[4][0]["algorithm"][7] = "000000000000000g";
    bad[5][0]["algorithm"][7] = 7;
    for (const nlohmann::json& json : bad) {
        try {
            choices_from_json(json, "manifest.json");
            FAIL() << json.dump();
        } catch (const Error& e) {
            EXPECT_EQ(e.code, Exit::data);
            EXPECT_STREQ(e.what(),
                         "manifest.json: extra.matmul is not a list of products' algorithms; take an earlier "
                         "checkpoint");
        }
    }
}

}  // namespace
}  // namespace q2::test
