"""Entries of a directory that does not exist: the same for the same number, on every machine.

A name is put together from parts as company names in Japan often are: a place or a family, what is made or sold, and a
word for the firm. Each part has a reading in kana and one in Latin letters; both can be searched for.
"""

# (Latin, kana) of what names begin with: places, families, things that bring luck.
FIRST = [
    ("Akagi", "アカギ"), ("Akebono", "アケボノ"), ("Aoba", "アオバ"), ("Asahi", "アサヒ"), ("Asano", "アサノ"),
    ("Azuma", "アズマ"), ("Chitose", "チトセ"), ("Daiwa", "ダイワ"), ("Ezo", "エゾ"), ("Fuji", "フジ"),
    ("Fukuda", "フクダ"), ("Furusawa", "フルサワ"), ("Hakone", "ハコネ"), ("Hamada", "ハマダ"), ("Hayashi", "ハヤシ"),
    ("Hikari", "ヒカリ"), ("Hinode", "ヒノデ"), ("Hirano", "ヒラノ"), ("Hokuto", "ホクト"), ("Ibuki", "イブキ"),
    ("Inaba", "イナバ"), ("Ishikawa", "イシカワ"), ("Iwaki", "イワキ"), ("Izumi", "イズミ"), ("Kaede", "カエデ"),
    ("Kamome", "カモメ"), ("Kanda", "カンダ"), ("Kasuga", "カスガ"), ("Katsura", "カツラ"), ("Kiku", "キク"),
    ("Kinugawa", "キヌガワ"), ("Kiso", "キソ"), ("Komatsu", "コマツ"), ("Kosumo", "コスモ"), ("Kurobe", "クロベ"),
    ("Maruyama", "マルヤマ"), ("Matsuba", "マツバ"), ("Midori", "ミドリ"), ("Minato", "ミナト"), ("Mizuho", "ミズホ"),
    ("Momiji", "モミジ"), ("Morita", "モリタ"), ("Musashi", "ムサシ"), ("Nagasaki", "ナガサキ"), ("Nanbu", "ナンブ"),
    ("Naruto", "ナルト"), ("Nishiki", "ニシキ"), ("Ogawa", "オガワ"), ("Okina", "オキナ"), ("Oku", "オク"),
    ("Rokko", "ロッコウ"), ("Sado", "サド"), ("Sakura", "サクラ"), ("Sanyo", "サンヨウ"), ("Satsuki", "サツキ"),
    ("Shimada", "シマダ"), ("Shirakaba", "シラカバ"), ("Suzuran", "スズラン"), ("Tachibana", "タチバナ"), ("Takao", "タカオ"),
    ("Tanaka", "タナカ"), ("Tenryu", "テンリュウ"), ("Tokiwa", "トキワ"), ("Towada", "トワダ"), ("Tsubame", "ツバメ"),
    ("Tsukuba", "ツクバ"), ("Umeda", "ウメダ"), ("Wakaba", "ワカバ"), ("Yamabiko", "ヤマビコ"), ("Yamato", "ヤマト"),
    ("Yayoi", "ヤヨイ"), ("Yoshino", "ヨシノ"), ("Zao", "ザオウ"),
]
# (Latin, kana) of what is made or sold.
TRADE = [
    ("Bakery", "ベーカリー"), ("Cleaning", "クリーニング"), ("Denki", "デンキ"), ("Dental", "デンタル"), ("Design", "デザイン"),
    ("Engei", "エンゲイ"), ("Foods", "フーズ"), ("Garage", "ガレージ"), ("Glass", "ガラス"), ("Gomu", "ゴム"),
    ("Hotel", "ホテル"), ("Insatsu", "インサツ"), ("Jidosha", "ジドウシャ"), ("Kagaku", "カガク"), ("Kagu", "カグ"),
    ("Kamera", "カメラ"), ("Kensetsu", "ケンセツ"), ("Kikai", "キカイ"), ("Kogyo", "コウギョウ"), ("Kutsu", "クツ"),
    ("Megane", "メガネ"), ("Mokuzai", "モクザイ"), ("Music", "ミュージック"), ("Nosan", "ノウサン"), ("Onsen", "オンセン"),
    ("Optics", "オプティクス"), ("Paint", "ペイント"), ("Rentacar", "レンタカー"), ("Sake", "サケ"), ("Seiki", "セイキ"),
    ("Seimen", "セイメン"), ("Seni", "センイ"), ("Sushi", "スシ"), ("System", "システム"), ("Taxi", "タクシー"),
    ("Tekko", "テッコウ"), ("Tsushin", "ツウシン"), ("Unyu", "ウンユ"), ("Video", "ビデオ"), ("Yakkyoku", "ヤッキョク"),
]
# (Latin, kana) of words for a firm; none is a word too.
FIRM = [
    ("", ""), ("Shoji", "ショウジ"), ("Shokai", "ショウカイ"), ("Sangyo", "サンギョウ"), ("Seisakusho", "セイサクショ"),
    ("Honten", "ホンテン"), ("Center", "センター"), ("Service", "サービス"), ("Group", "グループ"),
]
# Towns that do not exist, of prefectures that do not either.
TOWNS = [
    "Aokawa", "Asamori", "Higashino", "Hoshizato", "Kamiyama-cho", "Kazehara", "Kitaminato", "Midorigaoka", "Nagisa",
    "Nishimori", "Sakurano", "Shiomi", "Takazato", "Tsukimi", "Umibe", "Yukinosato",
]


class Numbers:
    """SplitMix64: numbers that depend on the seed alone, whatever Python's version."""

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = seed & self.MASK

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
        return ((z ^ (z >> 31)) * bound) >> 64


def entries(count, seed=1):
    """`count` entries: (id, name, kana, trade, town, phone, about). Ids begin with 1."""
    numbers = Numbers(seed)
    for number in range(1, count + 1):
        first = FIRST[numbers.below(len(FIRST))]
        trade = TRADE[numbers.below(len(TRADE))]
        firm = FIRM[numbers.below(len(FIRM))]
        town = TOWNS[numbers.below(len(TOWNS))]
        name = " ".join(part for part in (first[0], trade[0], firm[0]) if part)
        kana = " ".join(part for part in (first[1], trade[1], firm[1]) if part)
        # 0xx-555-xxxx rings nowhere.
        phone = "0%02d-555-%04d" % (10 + numbers.below(90), numbers.below(10000))
        about = "%s in %s since %d, %d people" % (trade[0], town, 1900 + numbers.below(97), 1 + numbers.below(500))
        yield number, name, kana, trade[0], town, phone, about
