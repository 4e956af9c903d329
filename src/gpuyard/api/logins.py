"""Tokens and logins on the wire, as they are asked for."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gpuyard.api.fields import Word, tenant_path
from gpuyard.config.access import ROLE_WORDS

DAYS_MAX = 3660
_USER = r"^[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}$"


class TokenRequest(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    user: Annotated[str, Field(pattern=_USER)] = Field(description="The user that the token is for.")
    role: Annotated[str, Field(json_schema_extra={"enum": ROLE_WORDS})] | None = Field(
        None, description="Left out: what the user has in yard.yaml, else user."
    )
    tenant: Annotated[str, Field(max_length=512), AfterValidator(tenant_path)] | None = Field(
        None, description="Where the role holds; empty: the whole yard. Left out: where the user's own does."
    )
    days: int | None = Field(None, ge=1, le=DAYS_MAX, description="Left out: as yard.yaml says.")
    note: Annotated[Word, Field(max_length=200)] = Field("", description="What it is for.")


class OidcLogin(BaseModel):
    """What the identity provider says about a person."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id_token: Annotated[str, Field(min_length=1, max_length=64_000)]
    nonce: Annotated[str, Field(min_length=16, max_length=200)]
