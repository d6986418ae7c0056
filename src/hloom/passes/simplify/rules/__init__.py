"""The rewrite rules of the algebraic simplifier, one file a family; the law they obey stands in the simplifier."""
