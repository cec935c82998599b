"""Whether Japanese, Chinese or Korean letters, which have no capitals, are a sentence or an organisation."""

import re

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
_KOREAN_ENDS = re.compile(
    r"[월화수목금토일]요일|[\uac00-\ud7a3]{2,}(?:(?<!입)니다|까요|세요|십시오|해요|네요|어요|아요)\Z"
)


def names_nobody(value: str) -> bool:
    """Whether letters of these scripts begin with a word that no name begins with, or are no name by their end."""
    words = east_asian_words()
    return (
        any(value[:size] in words for size in range(1, min(_LONGEST, len(value)) + 1))
        or _ORGANISATION.search(value) is not None
        or _KOREAN_ENDS.search(value) is not None
    )
