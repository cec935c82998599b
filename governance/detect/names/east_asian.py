"""Whether Japanese, Chinese or Korean letters, which have no capitals, are a sentence or an organisation."""

import re
from functools import cache

from governance.detect.rules.registry import TOLD_NAMES, read_registry
from governance.names.words import east_asian_words

FIRST_LETTER = "\u3040"
"""Letters of these scripts begin here."""
_LONGEST = max(map(len, east_asian_words()))
_ORGANISATION = re.compile(
    r"(?:公司|集团|集團|中心|银行|銀行|大学|大學|医院|科技|支付|电信|移动|协会|研究院|研究所|(?:技术|销售|财务|市场|人事|客服|采购|行政|法务|研发|运营|产品)部"
    r"|株式会社|有限会社|会社|商事|工業|(?:営業|総務|人事|経理|技術|開発|法務|販売|広報|企画|製造|購買)[部課]|チーム|グループ|センター|サポート|デスク|サービス|窓口"
    r"|전자|자동차|회사|센터|은행|그룹|대학교|병원|통신|화재|생명|증권|(?:영업|총무|인사|개발|기술|홍보|재무|법무|마케팅|지원|운영|고객)[부팀])\Z"
    r"|\A(?:株式会社|有限会社|주식회사|㈜|\(주\))"
)
_KOREAN_SURNAMES = (
    "김이박최정강조윤장임한오서신권황안송류전홍고문양손배백허유남심노하곽성차주우구민진지"
)
_KOREAN_ENDS = re.compile(
    r"[월화수목금토일]요일"
    rf"|\A(?![{_KOREAN_SURNAMES}])[\uac00-\ud7a3 ]{{2,}}(?:(?<!입)니다|까요|세요|십시오|해요|네요|어요|아요)\Z"
)
_KOREAN_NAME_WITHIN = re.compile(rf" [{_KOREAN_SURNAMES}][\uac00-\ud7a3]{{2}}")


@cache
def _surname_within() -> re.Pattern[str]:
    """Return what finds a surname behind the first letter; single letters are Chinese ones alone."""
    fragments = read_registry(TOLD_NAMES)["fragments"]
    japanese = [name for name in fragments["ja_surname"] if len(name) > 1]
    return re.compile(rf"(?<!\A)(?:[{fragments['zh_surname']}]|{'|'.join(japanese)})")


def _begins_with_a_word(value: str) -> bool:
    words = east_asian_words()
    if all(value[:size] not in words for size in range(1, min(_LONGEST, len(value)) + 1)):
        return False
    return not (_surname_within().search(value) or _KOREAN_NAME_WITHIN.search(value))


def names_nobody(value: str) -> bool:
    """Whether letters of these scripts begin with a word that no name begins with, or are no name by their end.

    A sentence with a surname within may name somebody.
    """
    return (
        _begins_with_a_word(value)
        or _ORGANISATION.search(value) is not None
        or _KOREAN_ENDS.search(value) is not None
    )
